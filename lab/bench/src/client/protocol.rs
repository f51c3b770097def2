//! The requests: one small value is stored and then read over and over.

use std::fmt;
use std::str::FromStr;

/// Protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, the protocol of Redis: `GET`.
    Redis,
    /// memcached's text protocol: `get`.
    Memcached,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Redis, Self::Memcached];

    /// The request that stores the value.
    pub(crate) const fn set(self) -> &'static [u8] {
        match self {
            Self::Redis => b"*3\r\n$3\r\nSET\r\n$7\r\ngleaner\r\n$3\r\nxxx\r\n",
            Self::Memcached => b"set gleaner 0 0 3\r\nxxx\r\n",
        }
    }

    /// The expected answer to [`Self::set`].
    pub(crate) const fn stored(self) -> &'static [u8] {
        match self {
            Self::Redis => b"+OK\r\n",
            Self::Memcached => b"STORED\r\n",
        }
    }

    /// The request that reads the value.
    pub(crate) const fn request(self) -> &'static [u8] {
        match self {
            Self::Redis => b"*2\r\n$3\r\nGET\r\n$7\r\ngleaner\r\n",
            Self::Memcached => b"get gleaner\r\n",
        }
    }

    /// The expected answer to [`Self::request`].
    pub(crate) const fn answer(self) -> &'static [u8] {
        match self {
            Self::Redis => b"$3\r\nxxx\r\n",
            Self::Memcached => b"VALUE gleaner 0 3\r\nxxx\r\nEND\r\n",
        }
    }

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|protocol| protocol.name() == name);
        known.ok_or_else(|| {
            format!("`{name}` is not supported; use one of: {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}
