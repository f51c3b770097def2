/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose threads are traced. */
#ifndef GLEANER_SCOPE_H
#define GLEANER_SCOPE_H

#include "task.bpf.h"

static __always_inline bool in_scope(struct task_struct *p, struct task_state *t)
{
	if (scope_kind == SCOPE_SYSTEM)
		return true;
	if (scope_kind == SCOPE_CGROUP)
		return in_group(p);
	return t && t->member;
}

/*
 * Whether the thread's state is kept. Checked again at each wake-up, since a
 * process can be moved.
 */
static __always_inline bool is_followed(struct task_struct *p, struct task_state *t)
{
	if (t->followed == FOLLOWED_UNKNOWN)
		t->followed = in_scope(p, t) ? FOLLOWED_YES : FOLLOWED_NO;
	return t->followed == FOLLOWED_YES;
}

/* Counts n events caused by the running thread. */
static __always_inline void count(u32 what, u64 n)
{
	struct counts *counts = these_counts();
	struct task_struct *p;

	if (!counts)
		return;
	counts->all[what] += n;
	p = bpf_get_current_task_btf();
	if (in_scope(p, scope_kind == SCOPE_SYSTEM ? NULL : state_of(p)))
		counts->scope[what] += n;
}

#endif
