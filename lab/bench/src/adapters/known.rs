//! The built-in adapters.
//!
//! Inputs are generated and the same on every machine: numbers from a multiplicative congruential generator
//! as text, which compress and encode roughly like real data, or a picture of noise and waves.

use super::{Adapter, Default, Parameter, RequiredProgram};

const THREADS: Parameter = Parameter { name: "threads", default: Default::Cpus, about: "threads" };

const REDIS: RequiredProgram =
    RequiredProgram { program: "redis-server", remedy: "apt-get install redis-server redis-tools" };
const REDIS_BENCHMARK: RequiredProgram =
    RequiredProgram { program: "redis-benchmark", remedy: "apt-get install redis-tools" };
const MARIADB: RequiredProgram =
    RequiredProgram { program: "mariadbd", remedy: "apt-get install mariadb-server mariadb-client" };
const SYSBENCH: RequiredProgram = RequiredProgram { program: "sysbench", remedy: "apt-get install sysbench" };
const POSTGRES: RequiredProgram =
    RequiredProgram { program: "pgbench", remedy: "apt-get install postgresql" };
const NGINX: RequiredProgram = RequiredProgram { program: "nginx", remedy: "apt-get install nginx-light" };
const WRK: RequiredProgram = RequiredProgram { program: "wrk", remedy: "apt-get install wrk" };

/// Prints the first `{megabytes}` million bytes of such numbers.
const NUMBERS: &str = "seq 1 $(({megabytes} * 100000)) | awk '{printf \"%010.0f\\n\", ($1 * 2654435761) % 4294967296}' | \
                       head -c {megabytes}000000 >$STATE/input";

/// All adapters, in the order of the lists.
pub const ADAPTERS: &[Adapter] = &[
    Adapter {
        name: "parsec",
        about: "one benchmark of PARSEC 3.0, by its own parsecmgmt",
        needs: &[RequiredProgram {
            program: "parsecmgmt",
            remedy: "install PARSEC 3.0 (https://github.com/cirosantilli/parsec-benchmark), build the benchmark, and \
                     `source env.sh` before gleaner",
        }],
        parameters: &[
            Parameter { name: "benchmark", default: Default::Word("dedup"), about: "parsecmgmt's -p" },
            Parameter { name: "input", default: Default::Word("simlarge"), about: "parsecmgmt's -i" },
            THREADS,
        ],
        prepare: None,
        command: "parsecmgmt -a run -p {benchmark} -i {input} -n {threads}",
        expressions: &[],
        unit: "",
    },
    Adapter {
        name: "splash-3",
        about: "one program of SPLASH-3, by its path",
        needs: &[RequiredProgram {
            program: "{binary}",
            remedy: "build SPLASH-3 (https://github.com/SakalisC/Splash-3) and give the program's whole path",
        }],
        parameters: &[
            Parameter { name: "binary", default: Default::Required, about: "path of the program" },
            Parameter {
                name: "arguments",
                default: Default::Words(""),
                about: "more words, and `<` its input",
            },
            THREADS,
        ],
        prepare: None,
        command: "{binary} -p{threads} {arguments}",
        expressions: &[],
        unit: "",
    },
    Adapter {
        name: "sysbench-oltp",
        about: "MariaDB under sysbench's read-write transactions over a socket (paper 7.2.2)",
        needs: &[MARIADB, SYSBENCH],
        parameters: &[connections(16), SECONDS],
        prepare: Some("$BENCH load read-write-{connections} --state $STATE --prepare"),
        command: "$BENCH load read-write-{connections} --state $STATE --seconds {seconds}",
        expressions: &[RATE],
        unit: "transactions",
    },
    Adapter {
        name: "pgbench",
        about: "PostgreSQL under pgbench's select-only transactions over a socket",
        needs: &[POSTGRES],
        parameters: &[connections(8), SECONDS],
        prepare: Some("$BENCH load pgbench-{connections} --state $STATE --prepare"),
        command: "$BENCH load pgbench-{connections} --state $STATE --seconds {seconds}",
        expressions: &[RATE],
        unit: "transactions",
    },
    Adapter {
        name: "redis",
        about: "Redis under redis-benchmark's GET over a socket",
        needs: &[REDIS, REDIS_BENCHMARK],
        parameters: &[connections(1), SECONDS],
        prepare: None,
        command: "$BENCH load redis-{connections} --state $STATE --seconds {seconds}",
        expressions: &[RATE],
        unit: "requests",
    },
    Adapter {
        name: "wrk",
        about: "nginx under wrk, one small file",
        needs: &[NGINX, WRK],
        parameters: &[connections(16), SECONDS],
        prepare: None,
        command: "$BENCH load nginx-{connections} --state $STATE --seconds {seconds}",
        expressions: &[RATE],
        unit: "requests",
    },
    Adapter {
        name: "pbzip2",
        about: "compression in blocks: a producer, threads that compress, a writer, joined by queues",
        needs: &[RequiredProgram { program: "pbzip2", remedy: "apt-get install pbzip2" }],
        parameters: &[THREADS, megabytes(40)],
        prepare: Some(NUMBERS),
        command: "pbzip2 -b1 -p{threads} -k -c $STATE/input >/dev/null",
        expressions: &[],
        unit: "",
    },
    Adapter {
        name: "vips",
        about: "a picture through a blur and a sharpening, tile by tile in a pool of threads",
        needs: &[RequiredProgram { program: "vips", remedy: "apt-get install libvips-tools" }],
        parameters: &[
            THREADS,
            Parameter {
                name: "pixels",
                default: Default::Number(6000),
                about: "width and height of the picture",
            },
        ],
        prepare: Some("vips sines $STATE/picture.v {pixels} {pixels} --uchar --hfreq 31 --vfreq 17"),
        command: "VIPS_CONCURRENCY={threads} vips gaussblur $STATE/picture.v $STATE/blurred.v 6",
        expressions: &[],
        unit: "",
    },
    Adapter {
        name: "x264",
        about: "video encoding, one thread per frame that waits for the rows of the frame before it",
        needs: &[RequiredProgram { program: "x264", remedy: "apt-get install x264" }],
        parameters: &[THREADS, megabytes(40)],
        prepare: Some(NUMBERS),
        command: "x264 --no-progress --preset medium --threads {threads} --demuxer raw --input-res 640x360 --fps 25 \
                  --output /dev/null $STATE/input",
        expressions: &[r"encoded \d+ frames, (?<throughput>[0-9.]+) fps"],
        unit: "frames",
    },
];

/// Output of `gleaner-bench load`.
const RATE: &str = r"(?<throughput>[0-9.]+) [a-z ]+ per second";

const SECONDS: Parameter = Parameter {
    name: "seconds",
    default: Default::Number(2),
    about: "measured time, after one second of warm-up",
};

const fn connections(default: u32) -> Parameter {
    Parameter { name: "connections", default: Default::Number(default), about: "clients at a time" }
}

const fn megabytes(default: u32) -> Parameter {
    Parameter { name: "megabytes", default: Default::Number(default), about: "size of the input in MB" }
}
