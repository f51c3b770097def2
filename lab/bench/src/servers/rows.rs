//! The rows of the benchmark, as data.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_proto::result::{Class, Placement, ServerRow};

use super::error::{Result, ServersError};
use super::launch::find_program;
use super::own::Program;
use super::window::Window;
use crate::client::Protocol;

/// The load of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// redis-server with redis-benchmark's GET.
    Redis { connections: u32 },
    /// `MariaDB` with a sysbench script.
    MariaDb { script: &'static str, threads: u32 },
    /// `PostgreSQL` with pgbench's select-only script.
    Postgres { clients: u32 },
    /// nginx with wrk on one small file.
    Nginx { connections: u32 },
    /// The same with another nginx as proxy.
    Proxy { connections: u32 },
    /// An open loop on a key-value store, with `rate` requests per second over all connections.
    Open { protocol: Protocol, rate: u32, connections: u32 },
    /// memcached with our own client in a closed loop.
    Memcached { connections: u32 },
    /// An open loop of point selects on `MariaDB`.
    MariaDbAtRate { rate: u32, threads: u32 },
    /// One of our own programs.
    Own { program: Program, pairs: u32 },
    /// `perf bench sched pipe`: two processes that wake each other.
    Pipe,
    /// sysbench's own tests, without a server.
    Sysbench { test: &'static str, args: &'static [&'static str] },
}

/// One row of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Name on the command line and in the tables.
    pub name: &'static str,
    /// Unit of the rate, per second.
    pub unit: &'static str,
    /// Which processes the mode is applied to.
    pub placement: Placement,
    /// Required ratio to the untouched system; without it only the general requirements hold.
    pub target: Option<f64>,
    /// How it is judged.
    pub class: Class,
    pub(super) load: Load,
}

/// A required program, and its Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RequiredProgram {
    program: &'static str,
    package: &'static str,
}

const fn row(name: &'static str, unit: &'static str, target: Option<f64>, load: Load) -> Row {
    Row { name, unit, placement: Placement::Inside, target, class: Class::Rate, load }
}

const fn server_only(name: &'static str, unit: &'static str, target: f64, load: Load) -> Row {
    Row { name, unit, placement: Placement::ServerOnly, target: Some(target), class: Class::Rate, load }
}

const fn unseen(name: &'static str, unit: &'static str, load: Load) -> Row {
    Row { name, unit, placement: Placement::Inside, target: None, class: Class::Unseen, load }
}

/// Clients of an open loop stand for other machines, so the mode only applies to the server.
const fn latency(name: &'static str, unit: &'static str, load: Load) -> Row {
    Row { name, unit, placement: Placement::ServerOnly, target: None, class: Class::Latency, load }
}

const fn open(name: &'static str, protocol: Protocol, rate: u32, connections: u32) -> Row {
    latency(name, "requests", Load::Open { protocol, rate, connections })
}

const fn select_at(name: &'static str, rate: u32, threads: u32) -> Row {
    latency(name, "transactions", Load::MariaDbAtRate { rate, threads })
}

const fn own(name: &'static str, unit: &'static str, program: Program, pairs: u32) -> Row {
    unseen(name, unit, Load::Own { program, pairs })
}

const fn redis(connections: u32) -> Load {
    Load::Redis { connections }
}

const fn select(threads: u32) -> Load {
    Load::MariaDb { script: "oltp_point_select", threads }
}

const fn read_write(threads: u32) -> Load {
    Load::MariaDb { script: "oltp_read_write", threads }
}

const THREADS: Load = Load::Sysbench { test: "threads", args: &["--threads=2", "--thread-locks=1"] };
const CPU_1: Load = Load::Sysbench { test: "cpu", args: &["--threads=1"] };
const CPU_2: Load = Load::Sysbench { test: "cpu", args: &["--threads=2"] };

/// All rows, in the order of the tables.
pub const ROWS: &[Row] = &[
    row("redis-1", "requests", Some(5.0), redis(1)),
    row("redis-8", "requests", None, redis(8)),
    server_only("redis-1-server-only", "requests", 3.8, redis(1)),
    row("point-select-1", "transactions", Some(5.0), select(1)),
    row("point-select-4", "transactions", None, select(4)),
    row("point-select-16", "transactions", None, select(16)),
    server_only("point-select-1-server-only", "transactions", 4.0, select(1)),
    row("read-write-1", "transactions", Some(2.7), read_write(1)),
    row("read-write-4", "transactions", None, read_write(4)),
    row("read-write-16", "transactions", None, read_write(16)),
    row("pgbench-1", "transactions", None, Load::Postgres { clients: 1 }),
    row("pgbench-8", "transactions", None, Load::Postgres { clients: 8 }),
    row("nginx-1", "requests", None, Load::Nginx { connections: 1 }),
    row("nginx-16", "requests", None, Load::Nginx { connections: 16 }),
    row("pipe", "round trips", Some(8.0), Load::Pipe),
    row("threads-2", "events", None, THREADS),
    row("cpu-1", "events", None, CPU_1),
    row("cpu-2", "events", None, CPU_2),
    own("python-pipe", "round trips", Program::PythonPipe, 1),
    own("python-threads-1", "round trips", Program::PythonThreads, 1),
    own("python-threads-4", "round trips", Program::PythonThreads, 4),
    own("java-queue-1", "items", Program::JavaQueue, 1),
    own("java-queue-4", "items", Program::JavaQueue, 4),
    own("go-http-1", "requests", Program::GoHttp, 1),
    own("go-http-4", "requests", Program::GoHttp, 4),
    unseen("proxy-1", "requests", Load::Proxy { connections: 1 }),
    unseen("proxy-8", "requests", Load::Proxy { connections: 8 }),
    unseen("memcached-1", "requests", Load::Memcached { connections: 1 }),
    unseen("memcached-8", "requests", Load::Memcached { connections: 8 }),
    open("redis-open-2000-1", Protocol::Redis, 2_000, 1),
    open("redis-open-2000-4", Protocol::Redis, 2_000, 4),
    open("redis-open-5000-1", Protocol::Redis, 5_000, 1),
    open("redis-open-5000-4", Protocol::Redis, 5_000, 4),
    open("redis-open-20000-1", Protocol::Redis, 20_000, 1),
    open("redis-open-20000-4", Protocol::Redis, 20_000, 4),
    open("memcached-open-5000-4", Protocol::Memcached, 5_000, 4),
    open("memcached-open-20000-1", Protocol::Memcached, 20_000, 1),
    select_at("point-select-open-2000-1", 2_000, 1),
    select_at("point-select-open-2000-4", 2_000, 4),
];

/// The rows that match `filter`, a comma-separated list of names or parts of names. A row's full name matches
/// only that row.
///
/// # Errors
/// [`ServersError::Unknown`] for the first part that matches no row.
pub fn find(filter: &str) -> Result<Vec<Row>> {
    let parts: Vec<&str> = filter.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    let matches = |row: &Row, part: &str| {
        let exact = ROWS.iter().any(|r| r.name == part);
        if exact { row.name == part } else { row.name.contains(part) }
    };
    if let Some(unknown) = parts.iter().find(|part| !ROWS.iter().any(|row| matches(row, part))) {
        return Err(ServersError::Unknown {
            what: "row",
            name: (*unknown).to_owned(),
            known: ROWS.iter().map(|r| r.name).collect::<Vec<_>>().join(", "),
        });
    }
    let chosen = |row: &&Row| parts.is_empty() || parts.iter().any(|part| matches(row, part));
    Ok(ROWS.iter().filter(chosen).copied().collect())
}

/// Servers with any number of connections: `redis-N`, `point-select-N`, `read-write-N`, `pgbench-N`,
/// `nginx-N`.
///
/// # Errors
/// [`ServersError::Unknown`].
pub fn load(name: &str) -> Result<Row> {
    let unknown = || ServersError::Unknown {
        what: "load",
        name: name.to_owned(),
        known: "redis-N, point-select-N, read-write-N, pgbench-N, nginx-N (N connections)".to_owned(),
    };
    let (server, connections) = name.rsplit_once('-').ok_or_else(unknown)?;
    let connections = connections.parse().ok().filter(|n| (1..=10_000).contains(n)).ok_or_else(unknown)?;
    Ok(match server {
        "redis" => row("redis", "requests", None, redis(connections)),
        "point-select" => row("point-select", "transactions", None, select(connections)),
        "read-write" => row("read-write", "transactions", None, read_write(connections)),
        "pgbench" => row("pgbench", "transactions", None, Load::Postgres { clients: connections }),
        "nginx" => row("nginx", "requests", None, Load::Nginx { connections }),
        _ => return Err(unknown()),
    })
}

/// Checks that every program required by `rows` is installed.
///
/// # Errors
/// [`ServersError::Missing`] with all missing programs.
pub(crate) fn check_programs(rows: &[Row]) -> Result<()> {
    missing(rows.iter().flat_map(Row::needs).collect())
}

fn missing(needed: BTreeSet<RequiredProgram>) -> Result<()> {
    let missing: Vec<RequiredProgram> =
        needed.into_iter().filter(|n| find_program(n.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|n| n.package).collect();
    Err(ServersError::Missing {
        list: missing.iter().map(|n| n.program).collect::<Vec<_>>().join(", "),
        packages: packages.into_iter().collect::<Vec<_>>().join(" "),
    })
}

impl Row {
    /// The given times, or those that its class needs.
    pub fn window(&self, warmup: Option<Duration>, length: Option<Duration>) -> Window {
        let (usual_warmup, usual_length) = match self.class {
            Class::Rate => (1, 2),
            Class::Unseen => (2, 2),
            // At the lowest rate, 60 of 6,000 requests are beyond the 99th percentile.
            Class::Latency => (2, 3),
        };
        Window {
            warmup: warmup.unwrap_or(Duration::from_secs(usual_warmup)),
            length: length.unwrap_or(Duration::from_secs(usual_length)),
        }
    }

    /// How it is measured in `window`, and judged.
    pub(crate) fn described(&self, window: Window) -> ServerRow {
        ServerRow {
            placement: self.placement,
            class: self.class,
            warmup_s: window.warmup.as_secs_f64(),
            window_s: window.length.as_secs_f64(),
            target: self.target,
        }
    }

    /// Checks that the required programs are installed.
    ///
    /// # Errors
    /// [`ServersError::Missing`] with all missing programs.
    pub fn available(&self) -> Result<()> {
        check_programs(std::slice::from_ref(self))
    }

    /// The programs that the row requires.
    fn needs(&self) -> Vec<RequiredProgram> {
        let need = |program, package| RequiredProgram { program, package };
        let sysbench = need("sysbench", "sysbench");
        match self.load {
            Load::Redis { .. } => {
                vec![need("redis-server", "redis-server"), need("redis-benchmark", "redis-tools")]
            }
            Load::Open { protocol: Protocol::Redis, .. } => vec![need("redis-server", "redis-server")],
            Load::Open { protocol: Protocol::Memcached, .. } | Load::Memcached { .. } => {
                vec![need("memcached", "memcached")]
            }
            Load::MariaDb { .. } | Load::MariaDbAtRate { .. } => vec![
                need("mariadbd", "mariadb-server"),
                need("mariadb-install-db", "mariadb-server"),
                need("mariadb", "mariadb-client"),
                sysbench,
            ],
            Load::Postgres { .. } => vec![
                need("initdb", "postgresql"),
                need("postgres", "postgresql"),
                need("createdb", "postgresql"),
                need("pgbench", "postgresql"),
            ],
            Load::Nginx { .. } | Load::Proxy { .. } => vec![need("nginx", "nginx-light"), need("wrk", "wrk")],
            Load::Pipe => vec![need("perf", "linux-perf")],
            Load::Own { program, .. } => {
                let (program, package) = program.needs();
                vec![need(program, package)]
            }
            Load::Sysbench { .. } => vec![sysbench],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: &str) -> Vec<&'static str> {
        find(filter).unwrap().iter().map(|r| r.name).collect()
    }

    #[test]
    fn a_whole_name_means_that_row_alone() {
        assert_eq!(names("redis-1"), ["redis-1"]);
        assert_eq!(names("redis-1,redis-8"), ["redis-1", "redis-8"]);
        assert_eq!(names("server-only"), ["redis-1-server-only", "point-select-1-server-only"]);
        assert_eq!(names("pipe, cpu"), ["pipe", "cpu-1", "cpu-2"]);
        let open = ROWS.iter().filter(|row| row.class == Class::Latency).map(|row| row.name);
        assert!(names("open").into_iter().eq(open), "all open loops");
        assert_eq!(names("").len(), ROWS.len());
    }

    #[test]
    fn open_loops_and_only_these_are_judged_by_latency() {
        for row in ROWS {
            let open = matches!(row.load, Load::Open { .. } | Load::MariaDbAtRate { .. });
            assert_eq!(open, row.class == Class::Latency, "{}", row.name);
            assert_eq!(open, row.name.contains("-open-"), "{}", row.name);
            if let Load::Open { protocol, rate, connections } = row.load {
                assert_eq!(row.name, format!("{protocol}-open-{rate}-{connections}"));
            }
        }
    }

    #[test]
    fn a_window_that_is_given_holds_for_every_row() {
        let row = find("redis-open-2000-1").unwrap().remove(0);
        let second = Duration::from_secs(1);
        assert_eq!(row.window(None, None), Window { warmup: 2 * second, length: 3 * second });
        let given = row.window(Some(Duration::ZERO), Some(second));
        assert_eq!(given, Window { warmup: Duration::ZERO, length: second });
    }

    #[test]
    fn an_unknown_row_is_named() {
        let error = find("redis-1,mongo").unwrap_err().to_string();
        assert!(error.contains("unknown row `mongo`") && error.contains("threads-2"), "{error}");
    }

    #[test]
    fn a_load_has_any_number_of_connections() {
        assert_eq!(load("read-write-48").unwrap().load, read_write(48));
        assert_eq!(load("redis-1").unwrap().load, find("redis-1").unwrap()[0].load);
        for wrong in ["redis", "redis-0", "redis-x", "mongo-1", "-1", ""] {
            let error = load(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!("unknown load `{wrong}`")) && error.contains("nginx-N"),
                "{error}"
            );
        }
    }

    #[test]
    fn missing_programs_are_reported_with_their_packages() {
        let need = |program, package| RequiredProgram { program, package };
        assert!(missing([need("sh", "dash")].into()).is_ok());
        let needed = [need("no-such-server", "one"), need("no-such-tool", "one"), need("sh", "dash")];
        let error = missing(needed.into()).unwrap_err().to_string();
        assert_eq!(error, "not installed: no-such-server, no-such-tool; apt-get install one");
    }

    #[test]
    fn names_are_unique() {
        let unique: BTreeSet<_> = ROWS.iter().map(|r| r.name).collect();
        assert_eq!(unique.len(), ROWS.len());
    }
}
