/* SPDX-License-Identifier: GPL-2.0-only */
/* Whose threads are watched. */
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

/* For events that the running thread causes; n of them at once. */
static __always_inline void count(u32 what, u64 n)
{
	struct task_struct *p;
	struct counts *counts;
	u32 weight = weight_of_this();

	if (!weight)
		return;
	counts = these_counts();
	if (!counts)
		return;
	counts->all[what] += n * weight;
	p = bpf_get_current_task_btf();
	if (in_scope(p, scope_kind == SCOPE_SYSTEM ? NULL : state_of(p)))
		counts->scope[what] += n * weight;
}

/* For events that come from outside, whatever thread they find. */
static __always_inline void count_received(u32 what)
{
	u32 weight = weight_of_this();

	if (weight)
		count_all(what, weight);
}

#endif
