# Untried with Homebrew. packaging/recipes.py replaces the placeholders; packaging/check_recipes.sh
# runs `install` and `test` on a minimal imitation of Homebrew.
class Acpterm < Formula
  include Language::Python::Virtualenv

  desc "Real terminals for AI agents that speak the Agent Client Protocol"
  homepage "https://agentclientprotocol.com/protocol/terminals"
  url "@RELEASE_URL@/acpterm-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "python@3.13"

  on_macos do
    # The wheel of pyghostty, the terminal emulator.
    depends_on macos: :ventura
  end

  # Wheels for Python 3.13, including those that build acpterm.
  resource "dependencies" do
    url "@RELEASE_URL@/acpterm-@VERSION@-dependencies.tar"
    sha256 "@DEPENDENCIES_SHA256@"
  end

  def install
    wheels = buildpath/"wheels"
    resource("dependencies").stage(wheels)
    venv = virtualenv_create(libexec, "python3.13", system_site_packages: false)
    # Not venv.pip_install: it refuses wheels, and some dependencies need compilers to build.
    system "python3.13", "-m", "pip", "--python=#{venv.root}/bin/python", "install",
           "--no-index", "--find-links=#{wheels}", buildpath

    # Through opt, so that `acpterm restart` replaces a running daemon by an upgraded acpterm.
    (bin/"acpterm").write <<~SH
      #!/bin/sh
      exec "#{opt_libexec}/bin/python" -P -m acpterm "$@"
    SH
    chmod 0755, bin/"acpterm"

    man1.install Dir["docs/man/*.1"]
    bash_completion.install "docs/completions/acpterm.bash" => "acpterm"
    zsh_completion.install "docs/completions/_acpterm"
    fish_completion.install "docs/completions/acpterm.fish"
  end

  def caveats
    <<~TEXT
      Commands start the daemon when they need it; the service is optional. After an upgrade,
      `acpterm restart` makes a running daemon use the new version. Programs keep running.
    TEXT
  end

  service do
    run [opt_bin/"acpterm", "serve"]
    keep_alive true
    # launchd's PATH does not contain Homebrew's directories. Agents' programs inherit this PATH.
    environment_variables PATH: std_service_path_env
    log_path var/"log/acpterm.log"
    error_log_path var/"log/acpterm.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/acpterm --version")
    ENV["ACPTERM_SOCKET"] = "#{testpath}/run/agent.sock"
    begin
      assert_equal "hello\n", shell_output("#{bin}/acpterm run -- echo hello </dev/null")
      system bin/"acpterm", "run", "--detached", "--name", "shell", "--", "sh", "-c", "tty; printf '\\033[1mbold'"
      system bin/"acpterm", "wait", "shell"
      assert_match %r{/dev/.*\nbold}, shell_output("#{bin}/acpterm logs shell")
      # The screen comes from the terminal emulator.
      assert_match "bold", shell_output("#{bin}/acpterm screen shell")
      # Parsing a command needs the wheels of tree-sitter.
      assert_match(/^part +safe/, shell_output("#{bin}/acpterm policy check 'ls | head'"))
      assert_match "local", shell_output("#{bin}/acpterm provider list")
      assert_match "started", shell_output("#{bin}/acpterm audit")
    ensure
      system bin/"acpterm", "shutdown"
    end
  end
end
