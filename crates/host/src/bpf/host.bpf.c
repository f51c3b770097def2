// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attributes the time of vCPUs: to the guest, to the hypervisor by exit reason,
 * to waiting for a pCPU, to being halted. Nothing is sent to user space per
 * event; user space reads the vCPUs' counters.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "kvm_types.h"
#include "host.h"
#include "hist.bpf.h"
#include "machine.bpf.h"

#define TASK_RUNNING 0
#define QUEUE_MAP 22

/* Reason of each exit code; user space writes it for this machine's processor. */
const volatile u8 reason_of_code[EXIT_CODES] = {};
/* Only vCPUs of this process; 0: all. */
const volatile u32 only_tgid = 0;
#define SLOTS 1024
/* When user space had attached everything. */
volatile u64 started_ns = 0;
/* How many slots were given away; they are taken in order, so no higher one is in use. */
volatile u64 slots_taken = 0;

/* Unused: puts the enums, which no map or other variable has, in the BTF for user space. */
const volatile enum vector_class unused_vector = VECTOR_RESCHEDULE;
const volatile enum hist_id unused_hist = HIST_IPI_RESCHEDULE;
const volatile enum host_format unused_format = HIST_SUB_BITS;
const volatile enum steal_culprit unused_culprit = CULPRIT_IDLE;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS * HISTS);
	__type(key, u32);
	__type(value, struct hist);
} hists SEC(".maps");

/* Free slots; user space fills it, and returns those of threads that ended. */
struct {
	__uint(type, QUEUE_MAP);
	__uint(max_entries, SLOTS);
	__type(value, u32);
} free_slots SEC(".maps");

/* A thread that is a vCPU. In task storage, so that it ends with the thread. */
struct thread {
	u32 slot;
	u32 tgid;
	/* The halt in which the first event finds it ended then. */
	u64 halted_until;
};

/* vCPUs that are not followed: another VM's, or there was no slot. */
#define NO_SLOT 0xffffffff
/* A vCPU that woke up, and gets its slot at its next entry. */
#define PENDING 0xfffffffe

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct recipient {
	u64 kvm;
	u64 vcpu_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS);
	__type(key, struct recipient);
	__type(value, u32);
} recipients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct steal_key);
	__type(value, struct steal);
} steals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lost);
} losses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus SEC(".maps");

static __always_inline struct lost *this_lost(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&losses, &zero);
}

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

static __always_inline struct vcpu *vcpu_of(struct thread *t)
{
	u32 slot;

	if (!t)
		return NULL;
	slot = t->slot;
	return slot >= PENDING ? NULL : bpf_map_lookup_elem(&vcpus, &slot);
}

/* The running thread's counters, if it is a followed vCPU. */
static __always_inline struct vcpu *this_vcpu(void)
{
	return vcpu_of(thread_of(bpf_get_current_task_btf()));
}

static __always_inline void lock(struct vcpu *v)
{
	v->seq++;
	barrier();
}

static __always_inline void unlock(struct vcpu *v)
{
	barrier();
	v->seq++;
}

static __always_inline void add_length(u32 slot, u32 id, u64 ns)
{
	u32 key = slot * HISTS + id;
	struct hist *hist = bpf_map_lookup_elem(&hists, &key);

	if (!hist)
		return;
	hist->count++;
	hist->total_ns += ns;
	hist->buckets[bucket_of(ns) & (HIST_BUCKETS - 1)]++;
}

/* What the thread did from the start until its first event, if it existed at the start. */
static __always_inline void start(struct vcpu *v, struct task_struct *p, struct thread *t, u32 state,
				  u64 now)
{
	struct task_struct___started *of = (void *)p;
	u64 from = started_ns;

	v->first_ns = now;
	v->since_ns = now;
	if (!from || from > now || BPF_CORE_READ(of, start_time) > from)
		return;
	v->first_ns = from;
	v->since_ns = from;
	if (!t->halted_until) {
		v->state = state;
		return;
	}
	v->state = STATE_ASLEEP;
	v->reason = REASON_HLT;
	if (t->halted_until > from) {
		account(v, t->halted_until);
		v->state = STATE_HYPERVISOR;
	}
}

/* Apart from the hot paths: once per thread. */
static __noinline int first_event(struct task_struct *p, struct kvm_vcpu *vcpu, u32 state, u64 now)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct lost *lost = this_lost();
	struct recipient key = {};
	struct vcpu *v;
	u32 slot;

	if (!lost)
		return 0;
	if (!t) {
		lost->storage++;
		return 0;
	}
	t->tgid = p->tgid;
	t->slot = NO_SLOT;
	if (only_tgid && t->tgid != only_tgid)
		return 0;
	if (bpf_map_pop_elem(&free_slots, &slot)) {
		lost->vcpus++;
		return 0;
	}
	__sync_fetch_and_add(&slots_taken, 1);
	v = bpf_map_lookup_elem(&vcpus, &slot);
	if (!v)
		return 0;
	/* User space has cleared it. */
	lock(v);
	v->kvm = (u64)BPF_CORE_READ(vcpu, kvm);
	v->tgid = p->tgid;
	v->tid = p->pid;
	v->vcpu_id = BPF_CORE_READ(vcpu, vcpu_id);
	start(v, p, t, state, now);
	v->first_poll_success_ns = BPF_CORE_READ(vcpu, stat.generic.halt_poll_success_ns);
	v->first_poll_fail_ns = BPF_CORE_READ(vcpu, stat.generic.halt_poll_fail_ns);
	v->poll_success_ns = v->first_poll_success_ns;
	v->poll_fail_ns = v->first_poll_fail_ns;
	v->pcpu = bpf_get_smp_processor_id();
	unlock(v);
	key.kvm = v->kvm;
	key.vcpu_id = v->vcpu_id;
	bpf_map_update_elem(&recipients, &key, &slot, BPF_ANY);
	t->slot = slot;
	return 0;
}

/* The running vCPU's counters; `state`: what it did until now if this is its first event. */
static __always_inline struct vcpu *vcpu_at_event(struct kvm_vcpu *vcpu, u32 state, u64 now)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct thread *t = thread_of(p);

	/* Never; but the verifier cannot know. */
	if (!vcpu)
		return NULL;
	if (!t || t->slot == PENDING) {
		first_event(p, vcpu, state, now);
		t = thread_of(p);
	}
	return vcpu_of(t);
}

static __always_inline u32 exit_code_of(struct kvm_vcpu *vcpu, u32 isa)
{
	struct vcpu_vmx___before_vt *old = (void *)vcpu;
	struct vcpu_svm *svm = (void *)vcpu;
	struct vcpu_vmx *vmx = (void *)vcpu;

	if (isa == KVM_ISA_SVM)
		return BPF_CORE_READ(svm, vmcb, control.exit_code);
	if (bpf_core_field_exists(vmx->vt))
		return BPF_CORE_READ(vmx, vt.exit_reason.full) & 0xffff;
	if (bpf_core_field_exists(old->exit_reason))
		return BPF_CORE_READ(old, exit_reason.full) & 0xffff;
	return EXIT_CODES;
}

static __always_inline u32 reason_of_apic(u32 reg)
{
	switch (reg) {
	case APIC_EOI:
		return REASON_EOI;
	case APIC_ICR:
		return REASON_IPI;
	case APIC_LVTT:
	case APIC_TMICT:
		return REASON_APIC_TIMER;
	default:
		return REASON_APIC_OTHER;
	}
}

static __always_inline u32 reason_of_msr(struct kvm_vcpu *vcpu, u32 isa)
{
	struct vcpu_svm *svm = (void *)vcpu;
	u32 msr = BPF_CORE_READ(vcpu, arch.regs[VCPU_REGS_RCX]);

	/* AMD has one code for both, and says which in EXITINFO1. */
	if (isa == KVM_ISA_SVM && !(BPF_CORE_READ(svm, vmcb, control.exit_info_1) & 1))
		return REASON_MSR_READ;
	if (msr == MSR_IA32_TSC_DEADLINE)
		return REASON_TSC_DEADLINE;
	if (msr >= APIC_BASE_MSR && msr <= APIC_LAST_MSR)
		return reason_of_apic((msr - APIC_BASE_MSR) << 4);
	return REASON_MSR_WRITE;
}

/* A local APIC in device memory, where the guest does not use x2APIC. */
static __always_inline u32 reason_of_fault(struct kvm_vcpu *vcpu)
{
	struct vcpu_svm *svm = (void *)vcpu;
	u64 address = BPF_CORE_READ(svm, vmcb, control.exit_info_2);

	if ((address & ~0xfffULL) != APIC_DEFAULT_PHYS_BASE)
		return REASON_EPT;
	return reason_of_apic(address & 0xff0);
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(on_exit, struct kvm_vcpu *vcpu, u32 isa)
{
	u64 now = bpf_ktime_get_ns();
	struct vcpu *v = vcpu_at_event(vcpu, STATE_GUEST, now);
	u32 code, reason = REASON_OTHER;

	if (!v)
		return 0;
	code = exit_code_of(vcpu, isa);
	if (code < EXIT_CODES)
		reason = reason_of_code[code];
	if (reason == REASON_MSR_WRITE)
		reason = reason_of_msr(vcpu, isa);
	else if (reason == REASON_EPT && isa == KVM_ISA_SVM)
		reason = reason_of_fault(vcpu);
	lock(v);
	on_guest_exit(v, reason, now);
	v->halting = reason == REASON_HLT;
	unlock(v);
	return 0;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(on_entry, struct kvm_vcpu *vcpu)
{
	u64 now = bpf_ktime_get_ns();
	struct vcpu *v = vcpu_at_event(vcpu, STATE_UNKNOWN, now);

	if (!v)
		return 0;
	lock(v);
	if (v->reason == REASON_HLT && v->state == STATE_HYPERVISOR) {
		v->poll_success_ns = BPF_CORE_READ(vcpu, stat.generic.halt_poll_success_ns);
		v->poll_fail_ns = BPF_CORE_READ(vcpu, stat.generic.halt_poll_fail_ns);
		v->poll_limit_ns = BPF_CORE_READ(vcpu, halt_poll_ns);
		if (bpf_core_field_exists(vcpu->arch.msr_kvm_poll_control))
			v->guest_polls = !(BPF_CORE_READ(vcpu, arch.msr_kvm_poll_control) & 1);
	}
	on_guest_entry(v, now);
	unlock(v);
	return 0;
}

static __always_inline void refine_this(u32 reason)
{
	struct vcpu *v = this_vcpu();

	if (!v)
		return;
	lock(v);
	refine(v, reason);
	unlock(v);
}

/*
 * A register of the local APIC is written, in whatever way. For Intel alone:
 * AMD's exits say the address.
 */
SEC("tp_btf/kvm_apic")
int BPF_PROG(on_apic, unsigned int write, unsigned int reg)
{
	struct vcpu *v = this_vcpu();
	u32 reason;

	if (!v || !write)
		return 0;
	reason = v->reason;
	/* Other exits write it as well, and MSR writes are known already. */
	if (reason == REASON_EPT || reason == REASON_MMIO || reason == REASON_APIC_OTHER)
		refine_this(reason_of_apic(reg));
	return 0;
}

SEC("tp_btf/kvm_mmio")
int BPF_PROG(on_mmio)
{
	struct vcpu *v = this_vcpu();

	if (v && v->reason == REASON_EPT)
		refine_this(REASON_MMIO);
	return 0;
}

SEC("tp_btf/kvm_fast_mmio")
int BPF_PROG(on_fast_mmio)
{
	struct vcpu *v = this_vcpu();

	if (v && v->reason == REASON_EPT)
		refine_this(REASON_MMIO);
	return 0;
}

SEC("tp_btf/kvm_hypercall")
int BPF_PROG(on_hypercall, unsigned long nr)
{
	if (nr == KVM_HC_SEND_IPI)
		refine_this(REASON_PV_IPI);
	else if (nr == KVM_HC_SCHED_YIELD)
		refine_this(REASON_PV_YIELD);
	else if (nr == KVM_HC_KICK_CPU)
		refine_this(REASON_PV_KICK);
	return 0;
}

SEC("tp_btf/kvm_userspace_exit")
int BPF_PROG(on_userspace)
{
	struct vcpu *v = this_vcpu();

	if (!v)
		return 0;
	lock(v);
	went_to_vmm(v);
	unlock(v);
	return 0;
}

SEC("tp_btf/kvm_vcpu_wakeup")
int BPF_PROG(on_wakeup, u64 ns, bool waited)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct thread *t = thread_of(p);
	struct vcpu *v = vcpu_of(t);

	if (!t) {
		t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (t) {
			t->slot = PENDING;
			t->tgid = p->tgid;
			t->halted_until = bpf_ktime_get_ns();
		}
	}
	if (!v)
		return 0;
	lock(v);
	if (waited)
		v->halts_blocked++;
	else
		v->halts_polled++;
	unlock(v);
	return 0;
}

static __always_inline u32 class_of(u32 vector)
{
	if (vector == RESCHEDULE_VECTOR)
		return VECTOR_RESCHEDULE;
	if (vector == CALL_FUNCTION_VECTOR || vector == CALL_FUNCTION_SINGLE_VECTOR)
		return VECTOR_CALL;
	if (vector == LOCAL_TIMER_VECTOR)
		return VECTOR_TIMER;
	if (vector >= FIRST_EXTERNAL_VECTOR && vector < FIRST_SYSTEM_VECTOR)
		return VECTOR_DEVICE;
	return VECTOR_OTHER;
}

/* An interrupt is delivered, in the context of who sends it. */
SEC("tp_btf/kvm_apic_accept_irq")
int BPF_PROG(on_accept, u32 vcpu_id, u16 mode, u16 level, u8 vector)
{
	struct vcpu *sender = this_vcpu(), *v;
	struct recipient key = {};
	u32 class, *slot;

	/* A device's VM is not known here. */
	if (!sender)
		return 0;
	key.kvm = sender->kvm;
	key.vcpu_id = vcpu_id;
	slot = bpf_map_lookup_elem(&recipients, &key);
	v = slot ? bpf_map_lookup_elem(&vcpus, slot) : NULL;
	if (!v) {
		struct lost *lost = this_lost();

		if (lost)
			lost->recipients++;
		return 0;
	}
	/* Delivery modes other than fixed have no vector. */
	class = mode & 0x700 ? VECTOR_OTHER : class_of(vector);
	__sync_fetch_and_add(&v->delivered[class], 1);
	if (v != sender) {
		lock(sender);
		if (v->halting)
			sender->waking++;
		else
			sender->to_running[class]++;
		unlock(sender);
	}
	/* The oldest counts, until the vCPU takes it. */
	if (!v->irq_ns[class])
		v->irq_ns[class] = bpf_ktime_get_ns();
	return 0;
}

/* The vCPU enters the guest with this interrupt. */
SEC("tp_btf/kvm_inj_virq")
int BPF_PROG(on_inject, unsigned int vector, bool soft, bool reinjected)
{
	struct thread *t = thread_of(bpf_get_current_task_btf());
	struct vcpu *v = vcpu_of(t);
	u32 class = class_of(vector);
	u64 since_ns, now;

	if (!v || soft || reinjected)
		return 0;
	lock(v);
	v->injected[class]++;
	v->halts_ended[class] += v->halting;
	v->halting = 0;
	unlock(v);
	since_ns = v->irq_ns[class];
	if (!since_ns)
		return 0;
	v->irq_ns[class] = 0;
	now = bpf_ktime_get_ns();
	if (class == VECTOR_RESCHEDULE)
		add_length(t->slot, HIST_IPI_RESCHEDULE, since(since_ns, now));
	else if (class == VECTOR_CALL)
		add_length(t->slot, HIST_IPI_CALL, since(since_ns, now));
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct vcpu *v = vcpu_of(thread_of(p));

	if (v)
		v->woken_ns = bpf_ktime_get_ns();
	return 0;
}

/* Who had the pCPU for which a vCPU waited, as far as its last user is that. */
static __always_inline void add_steal(u32 victim, struct task_struct *prev, struct thread *from, u64 ns)
{
	struct steal_key key = { .victim = victim };
	struct steal *sum;

	if (from)
		key.culprit = from->tgid;
	else
		key.culprit = prev->pid ? CULPRIT_HOST : CULPRIT_IDLE;
	sum = bpf_map_lookup_elem(&steals, &key);
	if (!sum) {
		struct steal none = {};
		struct lost *lost;

		if (bpf_map_update_elem(&steals, &key, &none, BPF_ANY)) {
			lost = this_lost();
			if (lost)
				lost->pairs++;
			return;
		}
		sum = bpf_map_lookup_elem(&steals, &key);
		if (!sum)
			return;
	}
	sum->count++;
	sum->ns += ns;
}

static __always_inline void enter(struct vcpu *v, struct thread *to, struct task_struct *prev,
				  struct thread *from, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), id = HIST_PREEMPTED;
	u64 waited = 0;

	if (v->state == STATE_ASLEEP) {
		waited = since(wake_up_of(v, now), now);
		id = HIST_WOKEN;
	} else if (v->state == STATE_PREEMPTED) {
		waited = since(v->since_ns, now);
	}
	lock(v);
	switched_in(v, now);
	if (v->pcpu != cpu) {
		v->migrations++;
		v->pcpu = cpu;
	}
	unlock(v);
	if (waited) {
		add_length(to->slot, id, waited);
		add_steal(v->tgid, prev, from, waited);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *from = prev->pid ? thread_of(prev) : NULL;
	struct thread *to = next->pid ? thread_of(next) : NULL;
	u64 now = bpf_ktime_get_ns();
	struct vcpu *v;
	struct pcpu *c;
	u32 zero = 0;

	c = bpf_map_lookup_elem(&pcpus, &zero);
	if (c) {
		if (!c->since_ns)
			;
		else if (from)
			c->vcpu_ns += now - c->since_ns;
		else if (prev->pid)
			c->other_ns += now - c->since_ns;
		else
			c->idle_ns += now - c->since_ns;
		c->since_ns = now;
	}
	v = vcpu_of(from);
	if (v && !v->exited) {
		lock(v);
		switched_out(v, !preempt && prev->__state != TASK_RUNNING, now);
		unlock(v);
	}
	v = vcpu_of(to);
	if (v && !v->exited)
		enter(v, to, prev, from, now);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_thread_end, struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct vcpu *v = vcpu_of(t);
	struct recipient key = {};

	if (!v)
		return 0;
	lock(v);
	account(v, bpf_ktime_get_ns());
	v->exited = 1;
	unlock(v);
	key.kvm = v->kvm;
	key.vcpu_id = v->vcpu_id;
	bpf_map_delete_elem(&recipients, &key);
	/* User space gives the slot to another thread. */
	t->slot = NO_SLOT;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
