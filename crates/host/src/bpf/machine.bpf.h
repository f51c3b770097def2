/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state machine that attributes a vCPU's time: each event adds the time
 * since the one before it to the state that it ends. src/attribution.rs is the
 * same in Rust, and a test feeds both with the same events.
 */
#ifndef GLEANER_MACHINE_H
#define GLEANER_MACHINE_H

/* A thread that is woken while it leaves its pCPU has left it within this time. */
#define LEAVING_NS 100000

static __always_inline struct reason_sum *reason_of(struct vcpu *v)
{
	u32 reason = v->reason;

	/* For the verifier. */
	if (reason >= REASONS)
		reason = REASON_OTHER;
	return &v->reasons[reason];
}

static __always_inline u64 since(u64 earlier, u64 now)
{
	return now > earlier ? now - earlier : 0;
}

/* When the sleep that ends at `now` ended by a wake-up; `now` if none was seen. */
static __always_inline u64 wake_up_of(struct vcpu *v, u64 now)
{
	u64 woken = v->woken_ns;

	if (!woken || woken > now || woken + LEAVING_NS < v->since_ns)
		return now;
	return woken > v->since_ns ? woken : v->since_ns;
}

/* The wake-up that ended the halt which ends with a switch at `now`; 0: none was seen. */
static __always_inline u64 halt_wake_up_of(struct vcpu *v, u64 now)
{
	u64 woken = v->woken_ns;

	/* Exactly at the start: resumes() has made it up. */
	if (v->reason != REASON_HLT || woken == v->since_ns || wake_up_of(v, now) == now)
		return 0;
	return woken;
}

/* Adds the time in the current state until `now`. */
static __always_inline void account(struct vcpu *v, u64 now)
{
	struct reason_sum *sum = reason_of(v);
	u64 woken;

	switch (v->state) {
	case STATE_GUEST:
		v->guest_ns += since(v->since_ns, now);
		break;
	case STATE_HYPERVISOR:
		sum->run_ns += since(v->since_ns, now);
		break;
	case STATE_ASLEEP:
		woken = wake_up_of(v, now);
		sum->sleep_ns += since(v->since_ns, woken);
		sum->woken_ns += since(woken, now);
		break;
	case STATE_PREEMPTED:
		sum->preempted_ns += since(v->since_ns, now);
		break;
	default:
		v->unknown_ns += since(v->since_ns, now);
	}
	if (now > v->since_ns)
		v->since_ns = now;
}

/*
 * Following was paused at `paused`, and has resumed without an event of this
 * vCPU since: it sleeps. Whoever runs has an event at each tick at least.
 */
static __always_inline void left_alone(struct vcpu *v, u64 paused)
{
	account(v, paused);
	if (v->state != STATE_ASLEEP) {
		v->state = STATE_ASLEEP;
		v->reason = REASON_HLT;
	}
	if (v->woken_ns < paused)
		v->woken_ns = 0;
}

/*
 * Before the first event since following has resumed at `resumed`: what the
 * vCPU did until then follows from the event's kind.
 */
static __always_inline void resumes(struct vcpu *v, u32 kind, u64 paused, u64 resumed)
{
	u32 before = v->state;

	v->halt_woken_ns = 0;
	left_alone(v, paused);
	account(v, resumed);
	if (kind == EVENT_EXIT) {
		v->state = STATE_GUEST;
	} else if (kind != EVENT_IN) {
		v->state = STATE_UNKNOWN;
	} else if (v->woken_ns < resumed) {
		/* It did not wake up since, so it waited for a pCPU already. */
		if (before == STATE_PREEMPTED)
			v->state = STATE_PREEMPTED;
		else
			v->woken_ns = resumed;
	}
}

static __always_inline void on_guest_exit(struct vcpu *v, u32 reason, u64 now)
{
	/*
	 * An exit without an entry before it: KVM handled the previous exit on
	 * its fast path and went back without an event, or an event was lost.
	 * What lies between is nearly all the guest's.
	 */
	if (v->state == STATE_HYPERVISOR) {
		v->unpaired++;
		v->state = STATE_GUEST;
	} else if (v->state != STATE_GUEST && v->state != STATE_UNKNOWN) {
		v->disordered++;
	}
	account(v, now);
	v->state = STATE_HYPERVISOR;
	v->reason = reason;
	v->halt_woken_ns = 0;
	reason_of(v)->count++;
}

static __always_inline void on_guest_entry(struct vcpu *v, u64 now)
{
	if (v->state == STATE_ASLEEP || v->state == STATE_PREEMPTED)
		v->disordered++;
	account(v, now);
	v->state = STATE_GUEST;
}

/* What the exit's code left open is known now: all of its time belongs to this reason. */
static __always_inline void refine(struct vcpu *v, u32 reason)
{
	if (v->state != STATE_HYPERVISOR || v->reason == reason)
		return;
	if (reason_of(v)->count)
		reason_of(v)->count--;
	v->reason = reason;
	reason_of(v)->count++;
}

static __always_inline void switched_out(struct vcpu *v, bool asleep, u64 now)
{
	if (v->state == STATE_GUEST || v->state == STATE_ASLEEP || v->state == STATE_PREEMPTED)
		v->disordered++;
	account(v, now);
	v->state = asleep ? STATE_ASLEEP : STATE_PREEMPTED;
}

static __always_inline void switched_in(struct vcpu *v, u64 now)
{
	if (v->state == STATE_GUEST || v->state == STATE_HYPERVISOR)
		v->disordered++;
	/* A halt can have several sleeps. Preemption after the last one changes nothing. */
	if (v->state == STATE_ASLEEP)
		v->halt_woken_ns = halt_wake_up_of(v, now);
	account(v, now);
	v->state = STATE_HYPERVISOR;
}

static __always_inline void went_to_vmm(struct vcpu *v)
{
	if (v->state == STATE_HYPERVISOR)
		reason_of(v)->to_vmm++;
}

#endif
