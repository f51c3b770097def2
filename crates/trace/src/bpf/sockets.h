/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs that count socket traffic share with user space. */
#ifndef GLEANER_SOCKETS_H
#define GLEANER_SOCKETS_H

struct traffic {
	u64 sent_messages;
	u64 sent_bytes;
	u64 received_messages;
	u64 received_bytes;
};

#endif
