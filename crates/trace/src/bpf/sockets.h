/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the programs that count socket traffic and user space; src/sockets.rs has the same. */
#ifndef GLEANER_SOCKETS_H
#define GLEANER_SOCKETS_H

struct traffic {
	u64 sent_messages;
	u64 sent_bytes;
	u64 received_messages;
	u64 received_bytes;
};

#endif
