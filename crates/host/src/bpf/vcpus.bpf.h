/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps, and how a thread becomes a vCPU with counters. */
#ifndef GLEANER_VCPUS_H
#define GLEANER_VCPUS_H

#define QUEUE_MAP 22

/* Reason of each exit code; user space writes it for this machine's processor. */
const volatile u8 reason_of_code[EXIT_CODES] = {};
/* Only vCPUs of this process; 0: all. */
const volatile u32 only_tgid = 0;
#define SLOTS 1024
/* When user space had attached everything. */
volatile u64 started_ns = 0;
/*
 * Following in windows: user space pauses it if it costs too much. The clock of
 * all times here stands still meanwhile, so what is counted adds up to the time
 * in which vCPUs were followed. CLOCK_MONOTONIC is ahead of it by skipped_ns.
 */
volatile u64 window = 0;
volatile u64 paused = 0;
volatile u64 paused_ns = 0;
volatile u64 skipped_ns = 0;
/* When this window began, and when earlier ones ended. */
volatile u64 resumed_ns = 0;
#define WINDOW_ENDS 64
volatile u64 window_ends[WINDOW_ENDS] = {};
/* How many slots were given away; they are taken in order, so no higher one is in use. */
volatile u64 slots_taken = 0;

/* Unused: puts the enums, which no map or other variable has, in the BTF for user space. */
const volatile enum vector_class unused_vector = VECTOR_RESCHEDULE;
const volatile enum hist_id unused_hist = HIST_WAKING;
const volatile enum injecting unused_injecting = INJECT_NOTHING;
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

static __always_inline u64 clock(void)
{
	return (paused ? paused_ns : bpf_ktime_get_ns()) - skipped_ns;
}

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

/* The counters if the vCPU is followed now, and had an event since following has resumed. */
static __always_inline struct vcpu *up_to_date(struct vcpu *v)
{
	return v && !paused && v->window == window ? v : NULL;
}

static __always_inline struct vcpu *current_vcpu(void)
{
	return paused ? NULL : up_to_date(this_vcpu());
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

/* Apart from the hot paths: once per vCPU and window. */
static __noinline int catch_up_slowly(struct vcpu *v, u32 kind)
{
	u32 class;

	resumes(v, kind, window_ends[v->window % WINDOW_ENDS], resumed_ns);
	v->window = window;
	v->injecting = kind == EVENT_IN ? INJECT_HALT : INJECT_NOTHING;
	for (class = 0; class < VECTORS; class++)
		if (v->irq_ns[class] < resumed_ns)
			v->irq_ns[class] = 0;
	for (class = 0; class <= VECTOR_CALL; class++)
		if (v->wanted_ns[class] < resumed_ns)
			v->wanted_ns[class] = 0;
	return 0;
}

/* Before an event that changes the vCPU's state. */
static __always_inline void catch_up(struct vcpu *v, u32 kind)
{
	if (v->window != window)
		catch_up_slowly(v, kind);
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
	v->window = window;
	v->poll_window = window;
	if (!from || from > now || BPF_CORE_READ(of, start_time) > from)
		return;
	v->first_ns = from;
	v->since_ns = from;
	if (resumed_ns > from) {
		left_alone(v, from);
		account(v, resumed_ns);
	}
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

#endif
