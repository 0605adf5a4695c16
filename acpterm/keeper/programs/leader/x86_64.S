# The leader of a terminal's session, for x86_64. `image` describes what it does and what it receives.
#
# Registers: rbp the stack at the start (argc, argv, envp), rbx the block. Nothing is pushed, since the
# child of clone shares this stack until it executes its program. The numbers are those of syscall(2).
.intel_syntax noprefix
.globl _start
_start:
    mov     rbp, rsp                    # argc, argv, envp
    sub     rsp, 8192
    mov     rbx, rsp                    # the block
    mov     edi, 15                     # prctl(PR_SET_NAME, name)
    lea     rsi, [rip + name]
    mov     eax, 157
    syscall
    cmp     qword ptr [rbp], 1          # no program: hold the session
    je      hold
    mov     edi, 3                      # read(3, block, 8192)
    mov     rsi, rbx
    mov     edx, 8192
    xor     eax, eax
    syscall
    cmp     rax, 512
    jl      end
    cmp     qword ptr [rbx + 88], 0
    je      1f
    mov     rdi, rbx                    # clone3(block, 88)
    mov     esi, 88
    mov     eax, 435
    jmp     2f
1:  mov     edi, 0xc100                 # clone(CLONE_PARENT | CLONE_VFORK | CLONE_VM)
    xor     esi, esi
    xor     edx, edx
    xor     r10d, r10d
    xor     r8d, r8d
    mov     eax, 56
2:  syscall
    test    rax, rax
    je      child
    mov     [rbx], rax
    mov     rax, [rbp]                  # clear argv[1] to the last argument
    mov     rdi, [rbp + 16]
    mov     rdx, rdi
    mov     rcx, [rbp + rax * 8 + 16]   # envp[0] follows the arguments
    sub     rcx, rdi
    jbe     3f
    xor     eax, eax
    rep     stosb
    mov     rsi, rdi                    # madvise(their whole pages, MADV_DONTNEED)
    and     rsi, -65536
    lea     rdi, [rdx + 65535]
    and     rdi, -65536
    sub     rsi, rdi
    jbe     3f
    mov     edx, 4
    mov     eax, 28
    syscall
3:  mov     edi, 3                      # write(3, {pid, error}, 16)
    mov     rsi, rbx
    mov     edx, 16
    mov     eax, 1
    syscall
hold:
    lea     rdi, [rip + root]           # chdir("/")
    mov     eax, 80
    syscall
    xor     edi, edi                    # close(0), close(1), close(2), close(4)
    mov     eax, 3
    syscall
    mov     edi, 1
    mov     eax, 3
    syscall
    mov     edi, 2
    mov     eax, 3
    syscall
    mov     edi, 4
    mov     eax, 3
    syscall
wait:
    mov     edi, 3                      # read(3, block, 8): until the keeper closes its end
    mov     rsi, rbx
    mov     edx, 8
    xor     eax, eax
    syscall
    cmp     rax, -4                     # EINTR
    je      wait
end:
    xor     edi, edi
    mov     eax, 231
    syscall
child:
    mov     r12, [rbx + 104]            # prlimit64 for each limit
    lea     r13, [rbx + 128]
4:  test    r12, r12
    je      5f
    xor     edi, edi
    mov     rsi, [r13]
    lea     rdx, [r13 + 8]
    xor     r10d, r10d
    mov     eax, 302
    syscall
    test    rax, rax
    js      failed
    add     r13, 24
    dec     r12
    jmp     4b
5:  mov     rdi, [rbx + 96]             # umask
    mov     eax, 95
    syscall
    lea     rdi, [rbx + 512]            # chdir(directory)
    mov     eax, 80
    syscall
    test    rax, rax
    js      failed
    xor     edi, edi                    # setpgid(0, 0)
    xor     esi, esi
    mov     eax, 109
    syscall
    mov     eax, 39                     # ioctl(0, TIOCSPGRP, getpid())
    syscall
    mov     [rbx + 112], rax
    xor     edi, edi
    mov     esi, 0x5410
    lea     rdx, [rbx + 112]
    mov     eax, 16
    syscall
    mov     r12d, 32                    # rt_sigaction(32 and 33, SIG_DFL): posix_spawn ignores them
6:  mov     edi, r12d
    lea     rsi, [rbx + 16]             # zeros of the clone arguments
    xor     edx, edx
    mov     r10d, 8
    mov     eax, 13
    syscall
    inc     r12d
    cmp     r12d, 33
    jle     6b
    mov     qword ptr [rbx + 112], 0    # rt_sigprocmask(SIG_SETMASK, none)
    mov     edi, 2
    lea     rsi, [rbx + 112]
    xor     edx, edx
    mov     r10d, 8
    mov     eax, 14
    syscall
    mov     edi, 3                      # close(3), close(4)
    mov     eax, 3
    syscall
    mov     edi, 4
    mov     eax, 3
    syscall
    mov     rax, [rbp]                  # execve(argv[1], argv + 2, envp)
    mov     rdi, [rbp + 16]
    lea     rsi, [rbp + 24]
    lea     rdx, [rbp + rax * 8 + 16]
    mov     eax, 59
    syscall
failed:
    mov     [rbx + 8], rax
    mov     edi, 126
    mov     eax, 60
    syscall
name: .asciz "acpterm-session"
root: .asciz "/"
