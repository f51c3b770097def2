// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts what threads send and receive through sockets. Servers get here at
 * each request, so the program only checks the scope and adds two numbers.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "sockets.h"
#include "task.bpf.h"

/* include/linux/socket.h */
#define MSG_PEEK 2

struct sock;

struct member {
	u8 unused;
};

/* Each member of a process tree has one. Freed with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct traffic);
} traffic SEC(".maps");

/* This vCPU's counters, if the running thread is in the scope. */
static __always_inline struct traffic *counted(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u32 zero = 0;

	if (scope_kind == SCOPE_CGROUP) {
		if (!in_group(p))
			return NULL;
	} else if (scope_kind != SCOPE_SYSTEM) {
		if (!bpf_task_storage_get(&members, p, 0, 0))
			return NULL;
	}
	return bpf_map_lookup_elem(&traffic, &zero);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int ret, int flags)
{
	struct traffic *sums;

	if (ret <= 0)
		return 0;
	sums = counted();
	if (sums) {
		sums->sent_messages++;
		sums->sent_bytes += ret;
	}
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int ret, int flags)
{
	struct traffic *sums;

	/* Peeked data will be received again. */
	if (ret <= 0 || (flags & MSG_PEEK))
		return 0;
	sums = counted();
	if (sums) {
		sums->received_messages++;
		sums->received_bytes += ret;
	}
	return 0;
}

/* A new thread inherits its parent's scope. Attached only if the scope is a process tree. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (bpf_task_storage_get(&members, parent, 0, 0) ||
	    (scope_kind == SCOPE_CHILDREN && parent->tgid == scope_pid && child->tgid != scope_pid))
		bpf_task_storage_get(&members, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Run once at the start if the scope is a process tree, for threads that exist already. */
SEC("iter/task")
int first_pass(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p && descends(p))
		bpf_task_storage_get(&members, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
