/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The decisions as functions that Rust can call. */
#include <linux/types.h>

#define LOGIC
#include "logic.h"
