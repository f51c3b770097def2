//! A real Prometheus scrapes gleanerd while it helps a service.

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use gleaner_testing::prometheus::Prometheus;

use crate::common::{Gleanerd, READY};
use crate::stage::Stage;

#[test]
fn a_prometheus_sees_what_the_daemon_does() {
    let Some(stage) = Stage::set("") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As systemd passes the socket of gleanerd-metrics.socket on.
    let mut command = stage.home.command("export LISTEN_PID=$$ LISTEN_FDS=1\nexec 3<&0 </dev/null");
    let daemon = Gleanerd::start_with(&mut command, OwnedFd::from(listener), stage.home.socket());
    // Its copy of the socket must not outlive the daemon's.
    drop(command);
    daemon.until_logged(READY);
    let Some(prometheus) = Prometheus::start(stage.home.path(), address) else { return };
    prometheus.wait_for("up{job=\"gleaner\"} == 1");
    daemon.until_helped("redis");
    for query in [
        "gleaner_engaged_workloads == 1",
        "gleaner_leases > 0",
        "gleaner_trials_total{workload=\"redis\", verdict=\"proven\"} > 0",
        "gleaner_active_vcpus{workload=\"redis\"} > 0",
        "process_resident_memory_bytes > 0",
    ] {
        prometheus.wait_for(query);
    }
    daemon.client().detach("redis").unwrap();
    prometheus.wait_for("gleaner_engaged_workloads == 0");
    daemon.stop();
    prometheus.wait_for("up{job=\"gleaner\"} == 0");
    stage.assert_untouched();
}
