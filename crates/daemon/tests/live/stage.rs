//! One service that can be helped, on a machine that is this test's.

use gleaner_testing::group::{Service, Slice};
use gleaner_testing::placement::Placement;
use gleaner_testing::process::Running;
use gleaner_testing::server::{Server, has_programs, redis_benchmark};

use crate::common::{Home, Machine};

/// A service whose threads wait for each other: redis, and a client that asks it without pause.
pub(crate) struct Redis {
    pub(crate) server: Server,
    pub(crate) client: Running,
    pub(crate) service: Service,
    pub(crate) before: Placement,
}

impl Redis {
    /// Both in a service of this name.
    pub(crate) fn start(home: &Home, slice: &Slice, name: &str) -> Self {
        let service = slice.service(name);
        let server = Server::redis(home.path(), name, Some(&service));
        let client = redis_benchmark(&server, Some(&service));
        let before = Placement::read([&service], [server.pid()]);
        Self { server, client, service, before }
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement::read([&self.service], [self.server.pid()])
    }
}

/// What a test of one service, `redis`, needs; the last one goes last.
pub(crate) struct Stage {
    pub(crate) redis: Redis,
    pub(crate) home: Home,
    pub(crate) slice: Slice,
    pub(crate) machine: Machine,
}

impl Stage {
    /// With this configuration besides the rule that only the test's own services are engaged. `None`, with a message,
    /// where the test cannot run.
    #[track_caller]
    pub(crate) fn set(config: &str) -> Option<Self> {
        let machine = Machine::take_with_haltpoll().filter(|_| has_programs(&["redis-server"]))?;
        let slice = Slice::new()?;
        let home = Home::new(&rules(&slice, config));
        let redis = Redis::start(&home, &slice, "redis");
        Some(Self { redis, home, slice, machine })
    }

    /// Asserts that nothing is changed: neither the machine nor where redis is allowed to run.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        self.machine.assert_untouched();
        assert_eq!(self.redis.placement(), self.redis.before);
    }

    /// Whether nothing is changed, with the daemon still running.
    pub(crate) fn is_untouched(&self) -> bool {
        gleaner_testing::levers::Levers::read() == self.machine.before
            && self.redis.placement() == self.redis.before
    }
}

/// A configuration by which only the services of the slice are engaged.
pub(crate) fn rules(slice: &Slice, config: &str) -> String {
    format!("include = [{{ group = \"{}\" }}]\n{config}\n", slice.pattern())
}
