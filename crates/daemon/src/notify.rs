//! What the service manager hears of the daemon: that it is ready, reloads, lives and stops (`sd_notify(3)`). Without a
//! service manager, nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    is_heard: bool,
    watchdog: Option<Watchdog>,
    /// The latest status.
    status: String,
}

#[derive(Debug)]
struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Notify {
    /// As `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` say.
    pub(crate) fn from_environment() -> Self {
        // Half of the time after which the service manager takes the daemon for hung.
        let every = sd_notify::watchdog_enabled().map(|timeout| timeout / 2).filter(|every| !every.is_zero());
        let watchdog = every.map(|every| Watchdog { every, next: Instant::now() });
        Self { is_heard: std::env::var_os("NOTIFY_SOCKET").is_some(), watchdog, status: String::new() }
    }

    /// Whether there is a service manager.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// The daemon works, after its start or after a reload.
    pub(crate) fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The configuration is read again, until [`ready`](Self::ready).
    pub(crate) fn reloading(&self) {
        // systemd 253 and later distinguishes reloads by this.
        let now = NotifyState::monotonic_usec_now();
        self.send(&[NotifyState::Reloading, now.unwrap_or(NotifyState::MonotonicUsec(0))]);
    }

    /// What `systemctl status` shows; sent if it differs from the latest.
    pub(crate) fn status(&mut self, status: &str) {
        // A line is a message of its own.
        let status = status.replace(char::is_control, " ");
        if self.status != status {
            self.send(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// The daemon puts everything back and ends.
    pub(crate) fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// The loop turns. Sends a sign of life when one is due.
    pub(crate) fn watchdog(&mut self) {
        let now = Instant::now();
        if let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.next <= now) {
            watchdog.next = now + watchdog.every;
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// When the next sign of life is due.
    pub(crate) fn next_watchdog(&self) -> Option<Instant> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.is_heard
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!("cannot notify the service manager: {error}; it can take the daemon for hung");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    /// In the child alone, which has the environment that the test is about.
    const CHILD: &str = "GLEANER_TEST_NOTIFIES";

    /// A day of the daemon, with what its environment holds.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let mut notify = Notify::from_environment();
        notify.ready();
        notify.status("2 workloads,\nSTOPPING=1");
        notify.status("2 workloads,\nSTOPPING=1");
        notify.reloading();
        notify.ready();
        let first = notify.next_watchdog();
        notify.watchdog();
        notify.watchdog();
        assert_eq!(first.is_some(), notify.next_watchdog() > first);
        notify.stopping();
    }

    /// What the child has sent, with these variables.
    fn sent(variables: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "notify::tests::child", "--nocapture"])
            .env_remove("NOTIFY_SOCKET")
            .env(CHILD, "1")
            .envs(
                variables
                    .iter()
                    .map(|(name, value)| (name, value.replace("{socket}", path.to_str().unwrap()))),
            )
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        let mut message = [0; 1024];
        std::iter::from_fn(|| {
            socket.recv(&mut message).ok().map(|n| String::from_utf8_lossy(&message[..n]).into_owned())
        })
        .collect()
    }

    #[test]
    fn without_a_service_manager_nothing_happens() {
        assert!(sent(&[]).is_empty());
    }

    #[test]
    fn a_service_manager_hears_of_every_state() {
        let messages = sent(&[("NOTIFY_SOCKET", "{socket}"), ("WATCHDOG_USEC", "30000000")]);
        let reload = messages.iter().position(|message| message.starts_with("RELOADING=1\n")).unwrap();
        let usec = messages[reload].trim_end().strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(usec.parse::<u64>().unwrap() > 0, "in the same message: {messages:?}");
        let others: Vec<_> =
            messages.iter().enumerate().filter(|(i, _)| *i != reload).map(|(_, m)| m.trim_end()).collect();
        assert_eq!(
            others,
            ["READY=1", "STATUS=2 workloads, STOPPING=1", "READY=1", "WATCHDOG=1", "STOPPING=1"]
        );
    }

    #[test]
    fn a_watchdog_for_another_process_is_not_ours() {
        for no_watchdog in
            [&[][..], &[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")], &[("WATCHDOG_USEC", "0")]]
        {
            let messages = sent(&[&[("NOTIFY_SOCKET", "{socket}")], no_watchdog].concat());
            assert!(!messages.iter().any(|message| message.contains("WATCHDOG")), "{messages:?}");
        }
    }
}
