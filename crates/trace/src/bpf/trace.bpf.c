// SPDX-License-Identifier: GPL-2.0-only
/*
 * What only the kernel's events can tell about waiting: who waits for whom,
 * what each wake-up costs, which cause dominates.
 *
 * Every program stands on its own: user space leaves out what this kernel does
 * not have. Raw tracepoints with BTF, and fentry where there is no tracepoint.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "syscalls.h"
#include "state.bpf.h"
#include "scope.bpf.h"
#include "sched.bpf.h"
#include "look.bpf.h"
#include "vcpu.bpf.h"

/*
 * What the kernel counts as the run time of this is what looking at the clock
 * takes, and what the event takes longer with it is the way in and out.
 */
SEC("tp_btf/task_rename")
int nothing(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
