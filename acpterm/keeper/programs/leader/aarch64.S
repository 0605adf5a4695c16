// The leader of a terminal's session, for aarch64: x86_64.S with the same steps in the same order.
//
// Registers: x19 the stack at the start (argc, argv, envp), x20 the block, x22 envp. Nothing is pushed.
.globl _start
_start:
    mov     x19, sp                     // argc, argv, envp
    sub     sp, sp, #8192
    mov     x20, sp                     // the block
    ldr     x21, [x19]
    add     x22, x19, x21, lsl #3
    add     x22, x22, #16               // envp
    mov     x0, #15                     // prctl(PR_SET_NAME, name)
    adr     x1, name
    mov     x8, #167
    svc     #0
    cmp     x21, #1                     // no program: hold the session
    b.eq    hold
    mov     x0, #3                      // read(3, block, 8192)
    mov     x1, x20
    mov     x2, #8192
    mov     x8, #63
    svc     #0
    cmp     x0, #512
    b.lt    end
    ldr     x0, [x20, #88]
    cbz     x0, 1f
    mov     x0, x20                     // clone3(block, 88)
    mov     x1, #88
    mov     x8, #435
    b       2f
1:  mov     x0, #0xc100                 // clone(CLONE_PARENT | CLONE_VFORK | CLONE_VM)
    mov     x1, #0
    mov     x2, #0
    mov     x3, #0
    mov     x4, #0
    mov     x8, #220
2:  svc     #0
    cbz     x0, child
    str     x0, [x20]
    ldr     x9, [x19, #16]              // clear argv[1] to the last argument
    ldr     x10, [x22]                  // envp[0] follows the arguments
    mov     x11, x9
3:  cmp     x11, x10
    b.hs    4f
    strb    wzr, [x11], #1
    b       3b
4:  add     x0, x9, #16, lsl #12        // madvise(their whole pages, MADV_DONTNEED)
    sub     x0, x0, #1
    and     x0, x0, #-65536
    and     x1, x10, #-65536
    subs    x1, x1, x0
    b.ls    5f
    mov     x2, #4
    mov     x8, #233
    svc     #0
5:  mov     x0, #3                      // write(3, {pid, error}, 16)
    mov     x1, x20
    mov     x2, #16
    mov     x8, #64
    svc     #0
hold:
    adr     x0, root                    // chdir("/")
    mov     x8, #49
    svc     #0
    mov     x0, #0                      // close(0), close(1), close(2), close(4)
    mov     x8, #57
    svc     #0
    mov     x0, #1
    svc     #0
    mov     x0, #2
    svc     #0
    mov     x0, #4
    svc     #0
wait:
    mov     x0, #3                      // read(3, block, 8): until the keeper closes its end
    mov     x1, x20
    mov     x2, #8
    mov     x8, #63
    svc     #0
    cmn     x0, #4                      // EINTR
    b.eq    wait
end:
    mov     x0, #0
    mov     x8, #94
    svc     #0
child:
    ldr     x21, [x20, #104]            // prlimit64 for each limit
    add     x23, x20, #128
6:  cbz     x21, 7f
    mov     x0, #0
    ldr     x1, [x23]
    add     x2, x23, #8
    mov     x3, #0
    mov     x8, #261
    svc     #0
    tbnz    x0, #63, failed
    add     x23, x23, #24
    sub     x21, x21, #1
    b       6b
7:  ldr     x0, [x20, #96]              // umask
    mov     x8, #166
    svc     #0
    add     x0, x20, #512               // chdir(directory)
    mov     x8, #49
    svc     #0
    tbnz    x0, #63, failed
    mov     x0, #0                      // setpgid(0, 0)
    mov     x1, #0
    mov     x8, #154
    svc     #0
    mov     x8, #172                    // ioctl(0, TIOCSPGRP, getpid())
    svc     #0
    str     x0, [x20, #112]
    mov     x0, #0
    mov     x1, #0x5410
    add     x2, x20, #112
    mov     x8, #29
    svc     #0
    mov     x21, #32                    // rt_sigaction(32 and 33, SIG_DFL): posix_spawn ignores them
8:  mov     x0, x21
    add     x1, x20, #16                // zeros of the clone arguments
    mov     x2, #0
    mov     x3, #8
    mov     x8, #134
    svc     #0
    add     x21, x21, #1
    cmp     x21, #33
    b.le    8b
    str     xzr, [x20, #112]            // rt_sigprocmask(SIG_SETMASK, none)
    mov     x0, #2
    add     x1, x20, #112
    mov     x2, #0
    mov     x3, #8
    mov     x8, #135
    svc     #0
    mov     x0, #3                      // close(3), close(4)
    mov     x8, #57
    svc     #0
    mov     x0, #4
    svc     #0
    ldr     x0, [x19, #16]              // execve(argv[1], argv + 2, envp)
    add     x1, x19, #24
    mov     x2, x22
    mov     x8, #221
    svc     #0
failed:
    str     x0, [x20, #8]
    mov     x0, #126
    mov     x8, #93
    svc     #0
name: .asciz "acpterm-session"
root: .asciz "/"
