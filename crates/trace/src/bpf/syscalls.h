/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System call numbers, from include/uapi and
 * arch/x86/entry/syscalls/syscall_64.tbl; less than -1: does not exist.
 */
#ifndef GLEANER_SYSCALLS_H
#define GLEANER_SYSCALLS_H

#if defined(__TARGET_ARCH_x86)
#define NR_READ 0
#define NR_WRITE 1
#define NR_POLL 7
#define NR_READV 19
#define NR_WRITEV 20
#define NR_SELECT 23
#define NR_SCHED_YIELD 24
#define NR_NANOSLEEP 35
#define NR_ACCEPT 43
#define NR_SENDTO 44
#define NR_RECVFROM 45
#define NR_SENDMSG 46
#define NR_RECVMSG 47
#define NR_FUTEX 202
#define NR_CLOCK_NANOSLEEP 230
#define NR_EPOLL_WAIT 232
#define NR_PSELECT6 270
#define NR_PPOLL 271
#define NR_EPOLL_PWAIT 281
#define NR_ACCEPT4 288
#else
#define NR_READ 63
#define NR_WRITE 64
#define NR_POLL -2
#define NR_READV 65
#define NR_WRITEV 66
#define NR_SELECT -3
#define NR_SCHED_YIELD 124
#define NR_NANOSLEEP 101
#define NR_ACCEPT 202
#define NR_SENDTO 206
#define NR_RECVFROM 207
#define NR_SENDMSG 211
#define NR_RECVMSG 212
#define NR_FUTEX 98
#define NR_CLOCK_NANOSLEEP 115
#define NR_EPOLL_WAIT -4
#define NR_PSELECT6 72
#define NR_PPOLL 73
#define NR_EPOLL_PWAIT 22
#define NR_ACCEPT4 242
#endif
/* Above every system call number. */
#define MAX_SYSCALL 1000
#define NR_EPOLL_PWAIT2 441
#define NR_FUTEX_WAITV 449
#define NR_FUTEX_WAKE 454
#define NR_FUTEX_WAIT 455
#define NR_FUTEX_REQUEUE 456

#endif
