/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs count, and where. User space takes the types and the enums
 * from the BTF of the object.
 */
#ifndef GLEANER_HOST_H
#define GLEANER_HOST_H

/* What a vCPU's thread does. */
enum vcpu_state {
	/* Not known yet: no event of this vCPU was seen. */
	STATE_UNKNOWN,
	/* Executes the guest. */
	STATE_GUEST,
	/* On a pCPU after a VM exit, in KVM or in the VMM. */
	STATE_HYPERVISOR,
	/* Off its pCPU, and not runnable. */
	STATE_ASLEEP,
	/* Off its pCPU although runnable. */
	STATE_PREEMPTED,
};

/*
 * Why the guest was left last. The codes of AMD and Intel are mapped to these
 * by a table from user space (src/reason.rs, which has the same order).
 */
enum exit_reason {
	REASON_UNKNOWN,
	REASON_HLT,
	REASON_IPI,
	REASON_PV_IPI,
	REASON_TSC_DEADLINE,
	REASON_APIC_TIMER,
	REASON_PREEMPTION_TIMER,
	REASON_EOI,
	REASON_APIC_OTHER,
	REASON_PLE,
	REASON_PV_YIELD,
	REASON_PV_KICK,
	REASON_EPT,
	REASON_MMIO,
	REASON_PIO,
	REASON_MSR_READ,
	REASON_MSR_WRITE,
	REASON_CPUID,
	REASON_INTERRUPT,
	REASON_INTERRUPT_WINDOW,
	REASON_NMI,
	REASON_HYPERCALL,
	REASON_CR,
	REASON_DR,
	REASON_EXCEPTION,
	REASON_INVLPG,
	REASON_TSC,
	REASON_MWAIT,
	REASON_CACHE,
	REASON_NESTED,
	REASON_CONFIDENTIAL,
	REASON_BUS_LOCK,
	REASON_SHUTDOWN,
	REASON_FAILED,
	REASON_OTHER,
	REASONS,
};

/* Codes beyond the table are REASON_OTHER. AMD's nested page fault is 0x400. */
#define EXIT_CODES 0x410

/* Interrupts, by what Linux guests use their vectors for. */
enum vector_class {
	VECTOR_RESCHEDULE,
	VECTOR_CALL,
	VECTOR_TIMER,
	VECTOR_DEVICE,
	VECTOR_OTHER,
	VECTORS,
};

/* An enum, since the BTF has no macros. */
enum host_format {
	/* log2 of a histogram's buckets per power of two. */
	HIST_SUB_BITS = 3,
	HIST_BUCKETS = 256,
};

/* As in crates/trace/src/bpf/trace.h. */
struct hist {
	u64 count;
	u64 total_ns;
	u64 buckets[HIST_BUCKETS];
};

/* Lengths of time that have a histogram for each vCPU. */
enum hist_id {
	/*
	 * From the delivery of an interrupt between vCPUs until the recipient
	 * enters the guest with it: of any for a halted vCPU, and of others.
	 */
	HIST_WAKING,
	HIST_RESCHEDULE,
	HIST_CALL,
	/*
	 * From the wake-up of a halted vCPU's thread until the vCPU enters the
	 * guest with the interrupt that ended the halt. KVM wakes the thread as
	 * soon as the timer expires or the interrupt is delivered. A halt that
	 * ended while KVM polled has no wake-up, and is not counted.
	 */
	HIST_TIMER,
	HIST_DEVICE,
	/* Waiting for a pCPU. */
	HIST_WOKEN,
	HIST_PREEMPTED,
	/*
	 * From the delivery of an interrupt between vCPUs to one without a pCPU
	 * until it gets one: of reschedule and function-call interrupts for halted
	 * vCPUs, and of either for others.
	 */
	HIST_PCPU_HALTED,
	HIST_PCPU_RESCHEDULE,
	HIST_PCPU_CALL,
	HISTS,
};

/* Exits that can end with the injection of an interrupt for whose sake they happened. */
enum injecting {
	INJECT_NOTHING,
	INJECT_HALT,
	INJECT_INTERRUPT,
	INJECT_WINDOW,
	INJECTS,
};

/* What happens after exits for one reason. */
struct reason_sum {
	u64 count;
	/* On a pCPU, in KVM or in the VMM. */
	u64 run_ns;
	/* Asleep; after HLT the vCPU is halted. */
	u64 sleep_ns;
	/* Waiting for a pCPU, after a wake-up and after preemption. */
	u64 woken_ns;
	u64 preempted_ns;
	/* Exits that went on to the VMM. */
	u64 to_vmm;
};

/*
 * A vCPU's counters. Written on the pCPU that its thread is on and nowhere
 * else, so there is one writer at a time and nothing to be summed over pCPUs.
 * The exceptions, which other pCPUs write, are woken_ns, irq_ns and wanted_ns.
 */
struct vcpu {
	/* Odd while the fields change. */
	u64 seq;
	/* Address of the kernel's struct kvm: the VM's identity. */
	u64 kvm;
	u32 tgid;
	u32 tid;
	u32 vcpu_id;
	u32 exited;
	enum vcpu_state state;
	enum exit_reason reason;
	/* Start of the accounted time, and of the current state. */
	u64 first_ns;
	u64 since_ns;
	/* The window of following (vcpus.bpf.h) in which its latest event was. */
	u64 window;
	/* The latest sched_waking of the thread. */
	u64 woken_ns;
	/* The wake-up that ended the present halt; 0: none was seen. */
	u64 halt_woken_ns;
	/*
	 * Oldest interrupt that is delivered and not injected, by class; 0: none.
	 * The lowest bit: whether the vCPU was halted.
	 */
	u64 irq_ns[VECTORS];
	/*
	 * Oldest reschedule and function-call interrupt of another vCPU since this
	 * one left its pCPU; 0: none, or it is on one. The lowest bit as above.
	 */
	u64 wanted_ns[VECTOR_CALL + 1];
	u64 unknown_ns;
	u64 guest_ns;
	/* Exits that followed no entry. */
	u64 unpaired;
	/* sched_switch to or from other states than those that allow it. */
	u64 disordered;
	/* Halts: polled until the wake-up; blocked; and KVM's own account of polling, since the VM's start. */
	u64 halts_polled;
	u64 halts_blocked;
	u64 poll_success_ns;
	u64 poll_fail_ns;
	u64 first_poll_success_ns;
	u64 first_poll_fail_ns;
	/* The window of the latest look at that account. */
	u64 poll_window;
	/* KVM's current limit of polling for this vCPU. */
	u64 poll_limit_ns;
	u64 migrations;
	u32 pcpu;
	/* Whether the guest polls itself, and asked the host not to. */
	u32 guest_polls;
	/* Since the exit nothing was injected; after INJECT_HALT the vCPU is halted. */
	u64 injecting;
	/* Exits by what they ended with the injection of. */
	u64 ended[INJECTS][VECTORS];
	/*
	 * Interrupts that this vCPU delivered to another one of its VM: to a
	 * halted one, which they wake, and to others by class. Guests wake idle
	 * vCPUs by either kind of interrupt, so the vector alone says little.
	 */
	u64 waking;
	u64 to_running[VECTORS];
	u64 delivered[VECTORS];
	u64 injected[VECTORS];
	struct reason_sum reasons[REASONS];
};

/* Who waited for a pCPU, and who had it just before: thread group ids. */
struct steal_key {
	u32 victim;
	/* 0: nobody, the pCPU was idle; 1: a thread that is no vCPU. */
	u32 culprit;
};

enum steal_culprit {
	CULPRIT_IDLE = 0,
	CULPRIT_HOST = 1,
};

struct steal {
	u64 count;
	u64 ns;
};

/* What found no room, per pCPU. */
struct lost {
	/* vCPUs that got no counters. */
	u64 vcpus;
	/* Threads that got no storage. */
	u64 storage;
	u64 pairs;
	/* Recipients of interrupts that are not known. */
	u64 recipients;
};

/* Who has a pCPU. */
enum pcpu_user {
	/* Not known yet: no switch was seen. */
	PCPU_UNKNOWN,
	PCPU_VCPU,
	PCPU_OTHER,
	PCPU_IDLE,
};

/* Where a pCPU's time went since the start, up to the last switch, and who has it since then. */
struct pcpu_times {
	u64 since_ns;
	u64 vcpu_ns;
	u64 other_ns;
	u64 idle_ns;
	enum pcpu_user user;
	/* User space asks for types that fields fill. */
	u32 unused;
};

struct pcpu {
	/*
	 * How often times were written: those at `written % 2` are whole. A reader does not
	 * wait while the other ones are written, which lasts where the host is a VM itself
	 * and loses the pCPU meanwhile.
	 */
	u64 written;
	struct pcpu_times times[2];
	/* The window of following in which the last switch was. */
	u64 window;
	/* VM exits, those while following is paused, too. */
	u64 exits;
};

/* An event for `replay`, which feeds the state machine alone. */
enum event_kind {
	EVENT_EXIT,
	EVENT_ENTRY,
	EVENT_REFINE,
	EVENT_OUT_RUNNABLE,
	EVENT_OUT_ASLEEP,
	EVENT_IN,
	EVENT_WAKING,
	EVENT_TO_VMM,
	/* The first event after a pause is of the kind in `reason`. */
	EVENT_RESUMED,
	EVENTS,
};

struct event {
	u64 ns;
	enum event_kind kind;
	enum exit_reason reason;
};

#define MAX_REPLAY 64

struct replay {
	u64 count;
	struct event events[MAX_REPLAY];
};

#endif
