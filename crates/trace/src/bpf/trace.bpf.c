// SPDX-License-Identifier: GPL-2.0-only
/*
 * What only the kernel's events show about waiting: who waits for whom, what
 * each wake-up costs, which cause dominates.
 *
 * The programs are independent: user space leaves out those that this kernel
 * does not support. Raw tracepoints with BTF, and fentry where there is no
 * tracepoint.
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
#include "sample.bpf.h"
#include "vcpu.bpf.h"

/*
 * An empty program, to measure overhead: the run time that the kernel reports
 * for it is the cost of reading the clock; what it adds to the event beyond
 * that is the entry and exit overhead.
 */
SEC("tp_btf/task_rename")
int empty_program(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
