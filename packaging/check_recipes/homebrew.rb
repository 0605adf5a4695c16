# Check the Homebrew formula with a minimal imitation of Homebrew: homebrew.rb FORMULA DIST PREFIX VERSION.
#
# The URLs of the formula must be those of files in the directory DIST, and its hashes those of the files.
# With python3.13 on the PATH, `install` and `test` are executed, into the empty directory PREFIX.
require "digest"
require "fileutils"
require "pathname"
require "shellwords"

FORMULA, DIST, PREFIX = ARGV.first(3).map { |argument| Pathname(argument).expand_path }
VERSION = ARGV.fetch(3)
HOMEBREW_PREFIX = PREFIX/"homebrew"

def check(condition, message)
  abort "FAILED: #{FORMULA.basename}: #{message}" unless condition
end

class Pathname
  # Copy files into the directory; a Hash gives them new names.
  def install(*sources)
    mkpath
    sources.flatten.each do |source|
      pairs = source.is_a?(Hash) ? source : { source => File.basename(source) }
      pairs.each { |from, name| FileUtils.cp(from, self/name) }
    end
  end

  # Homebrew creates the directory as well.
  def write(text)
    dirname.mkpath
    File.write(self, text)
  end
end

# Attributes that are set by calls with a value, and read by calls without.
module Attributes
  def attributes(*names)
    names.each do |name|
      define_method(name) do |value = nil|
        value ? instance_variable_set("@#{name}", value) : instance_variable_get("@#{name}")
      end
    end
  end
end

# Common to a formula and its resources: a file of the release, with its URL and hash.
module Download
  extend Attributes
  attributes :url, :sha256

  # Homebrew, too, finds the version in the URL.
  def version
    File.basename(url)[/-(\d+(?:\.\d+)*)[-.]/, 1]
  end

  def file
    DIST/File.basename(url)
  end

  def verify
    check(version == VERSION, "the version of #{url} is #{version}, not #{VERSION}")
    check(file.file?, "#{file} does not exist")
    check(Digest::SHA256.file(file.to_s).hexdigest == sha256, "the hash of #{file} is not #{sha256}")
  end

  # Unpack the archive into a directory, without the archive's single top-level directory.
  def stage(target)
    target.mkpath
    system("tar", "-xf", file.to_s, "-C", target.to_s, "--strip-components=1", exception: true)
  end
end

class Resource
  include Download
end

class Service
  extend Attributes
  attributes :run, :keep_alive, :log_path, :error_log_path, :environment_variables

  def opt_bin = HOMEBREW_PREFIX/"opt/acpterm/bin"
  def var = HOMEBREW_PREFIX/"var"
  def std_service_path_env = "#{HOMEBREW_PREFIX}/bin:/usr/bin:/bin"
end

module Language
  module Python
    module Virtualenv
      Environment = Struct.new(:root)

      def virtualenv_create(root, python, system_site_packages: true)
        options = system_site_packages ? ["--system-site-packages"] : []
        system python, "-m", "venv", "--without-pip", *options, root
        Environment.new(root)
      end
    end
  end
end

class Formula
  class << self
    extend Attributes
    include Download
    attributes :desc, :homepage, :license
    attr_reader :dependencies, :resources, :service_block, :test_block

    def inherited(formula)
      super
      $formula = formula
    end

    def depends_on(name) = (@dependencies ||= []) << name
    def on_macos = nil
    def resource(name, &block) = ((@resources ||= {})[name] = Resource.new).instance_eval(&block)
    def service(&block) = @service_block = block
    def test(&block) = @test_block = block
  end

  attr_accessor :buildpath, :testpath

  def prefix = HOMEBREW_PREFIX/"Cellar/acpterm"/version
  def bin = prefix/"bin"
  def libexec = prefix/"libexec"
  def man1 = prefix/"share/man/man1"
  def bash_completion = prefix/"etc/bash_completion.d"
  def zsh_completion = prefix/"share/zsh/site-functions"
  def fish_completion = prefix/"share/fish/vendor_completions.d"
  def opt_libexec = HOMEBREW_PREFIX/"opt/acpterm/libexec"
  def version = self.class.version
  def resource(name) = self.class.resources.fetch(name)
  def chmod(mode, path) = FileUtils.chmod(mode, path)

  def system(*command)
    words = command.map(&:to_s)
    check(Kernel.system(*words), "failed: #{words.shelljoin}")
  end

  def shell_output(command)
    output = `#{command}`
    check($?.success?, "failed: #{command}")
    output
  end

  def assert_equal(expected, actual) = check(expected == actual, "#{actual.inspect} is not #{expected.inspect}")
  def assert_match(expected, actual) = check(actual.match?(expected), "#{actual.inspect} does not match #{expected}")
end

load FORMULA.to_s
formula = $formula
formula.verify
formula.resources.each_value(&:verify)
check(formula.desc.length < 80, "the description is too long")
check(formula.license == "MIT", "the licence is #{formula.license}")
check(formula.dependencies == ["python@3.13"], "the dependencies are #{formula.dependencies}")
service = Service.new
service.instance_eval(&formula.service_block)
check(service.run.last == "serve", "the service executes #{service.run}")
puts "homebrew: versions, hashes and service are consistent"

unless system("python3.13", "-c", "", err: File::NULL)
  puts "homebrew: NOT CHECKED: install and test, which need python3.13 (set PYTHON313 to its path)"
  exit
end
# HOME may have a configuration of pip, which must not have an effect.
ENV.update("HOME" => (PREFIX/"home").to_s, "PIP_CONFIG_FILE" => File::NULL, "PIP_QUIET" => "2")
ENV["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
instance = formula.new
instance.buildpath = PREFIX/"build"
instance.testpath = PREFIX/"test"
formula.stage(instance.buildpath)
(HOMEBREW_PREFIX/"opt").mkpath
File.symlink(instance.prefix, HOMEBREW_PREFIX/"opt/acpterm")
Dir.chdir(instance.buildpath) { instance.install }
installed = Dir.glob("{bin,etc,share}/**/*", base: instance.prefix).reject { |path| (instance.prefix/path).directory? }
puts installed.sort.grep_v(/acpterm-\w+\.1$/).map { |path| "  #{path}" }
instance.testpath.mkpath
Dir.chdir(instance.testpath) { instance.instance_eval(&formula.test_block) }
puts "homebrew: install and test pass on an imitation of Homebrew, without a network"
