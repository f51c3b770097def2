/* SPDX-License-Identifier: GPL-2.0-only */
/* The bucket of a struct hist for a length of time. */
#ifndef GLEANER_HIST_H
#define GLEANER_HIST_H

static __always_inline u32 log2_of(u64 v)
{
	u32 r = 0;

	if (v >> 32) {
		v >>= 32;
		r += 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

static __always_inline u32 bucket_of(u64 ns)
{
	u32 power, bucket;

	if (ns < (1 << HIST_SUB_BITS))
		return ns;
	power = log2_of(ns);
	bucket = ((power - HIST_SUB_BITS + 1) << HIST_SUB_BITS) +
		 ((ns >> (power - HIST_SUB_BITS)) & ((1 << HIST_SUB_BITS) - 1));
	return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

#endif
