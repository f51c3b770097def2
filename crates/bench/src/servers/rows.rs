//! The rows of the benchmark and their targets, as data.

use std::collections::BTreeSet;

use super::launch::find_program;
use super::{Error, Result};

/// A ratio to the best static setting that every row has to reach: choosing by itself may cost 5 %.
pub(super) const OF_BEST_STATIC: f64 = 0.95;
/// A ratio to the untouched system that every row has to reach: the promise of the guard (at most 3 % worse).
pub(super) const OF_DEFAULT: f64 = 0.97;

/// Which processes the mode is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Server and client are inside one `gleaner run`.
    Inside,
    /// Only the server is; the client outside is untouched.
    ServerOnly,
}

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
    /// `perf bench sched pipe`: two processes that wake each other.
    Pipe,
    /// sysbench's own tests, without a server.
    Sysbench { test: &'static str, args: &'static [&'static str] },
}

/// One row of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name on the command line and in the tables.
    pub name: &'static str,
    /// What is counted, per second.
    pub unit: &'static str,
    /// Which processes the mode is applied to.
    pub placement: Placement,
    /// The ratio to the untouched system that Gleaner has to reach here; otherwise only the general ones hold.
    pub target: Option<f64>,
    pub(super) load: Load,
}

/// A program that a row needs, and the Debian package that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Needs {
    program: &'static str,
    package: &'static str,
}

const fn row(name: &'static str, unit: &'static str, target: Option<f64>, load: Load) -> Row {
    Row { name, unit, placement: Placement::Inside, target, load }
}

const fn server_only(name: &'static str, unit: &'static str, target: f64, load: Load) -> Row {
    Row { name, unit, placement: Placement::ServerOnly, target: Some(target), load }
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

/// Every row, in the order of the tables.
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
];

/// The rows that `filter` names: a comma-separated list of names or parts of names. A part that is a row's whole
/// name means that row alone.
///
/// # Errors
/// [`Error::Unknown`] with the first part that no row has.
pub fn find(filter: &str) -> Result<Vec<Row>> {
    let parts: Vec<&str> = filter.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    let matches = |row: &Row, part: &str| {
        let exact = ROWS.iter().any(|r| r.name == part);
        if exact { row.name == part } else { row.name.contains(part) }
    };
    if let Some(unknown) = parts.iter().find(|part| !ROWS.iter().any(|row| matches(row, part))) {
        return Err(Error::Unknown {
            what: "row",
            name: (*unknown).to_owned(),
            known: ROWS.iter().map(|r| r.name).collect::<Vec<_>>().join(", "),
        });
    }
    let chosen = |row: &&Row| parts.is_empty() || parts.iter().any(|part| matches(row, part));
    Ok(ROWS.iter().filter(chosen).copied().collect())
}

/// A server with any number of connections: `redis-N`, `point-select-N`, `read-write-N`, `pgbench-N`, `nginx-N`.
///
/// # Errors
/// [`Error::Unknown`].
pub fn load(name: &str) -> Result<Row> {
    let unknown = || Error::Unknown {
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

/// Looks for every program that `rows` need.
///
/// # Errors
/// [`Error::Missing`] with all that are not installed.
pub(super) fn check_programs(rows: &[Row]) -> Result<()> {
    missing(rows.iter().flat_map(Row::needs).collect())
}

fn missing(needed: BTreeSet<Needs>) -> Result<()> {
    let missing: Vec<Needs> = needed.into_iter().filter(|n| find_program(n.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|n| n.package).collect();
    Err(Error::Missing {
        list: missing.iter().map(|n| n.program).collect::<Vec<_>>().join(", "),
        packages: packages.into_iter().collect::<Vec<_>>().join(" "),
    })
}

impl Row {
    /// The programs without which the row cannot run.
    fn needs(&self) -> Vec<Needs> {
        let need = |program, package| Needs { program, package };
        let sysbench = need("sysbench", "sysbench");
        match self.load {
            Load::Redis { .. } => {
                vec![need("redis-server", "redis-server"), need("redis-benchmark", "redis-tools")]
            }
            Load::MariaDb { .. } => vec![
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
            Load::Nginx { .. } => vec![need("nginx", "nginx-light"), need("wrk", "wrk")],
            Load::Pipe => vec![need("perf", "linux-perf")],
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
        assert_eq!(names("redis"), ["redis-1", "redis-8", "redis-1-server-only"]);
        assert_eq!(names("pipe, cpu"), ["pipe", "cpu-1", "cpu-2"]);
        assert_eq!(names("").len(), ROWS.len());
    }

    #[test]
    fn an_unknown_row_is_named() {
        let error = find("redis-1,mongo").unwrap_err().to_string();
        assert!(error.contains("no row `mongo`") && error.contains("threads-2"), "{error}");
    }

    #[test]
    fn a_load_has_any_number_of_connections() {
        assert_eq!(load("read-write-48").unwrap().load, read_write(48));
        assert_eq!(load("redis-1").unwrap().load, find("redis-1").unwrap()[0].load);
        for wrong in ["redis", "redis-0", "redis-x", "mongo-1", "-1", ""] {
            let error = load(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("no load `{wrong}`")) && error.contains("nginx-N"), "{error}");
        }
    }

    #[test]
    fn missing_programs_are_told_with_their_packages() {
        let need = |program, package| Needs { program, package };
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
