// The loads of lab/sim/examples/compare.rs in SimGrid: threads as actors, vCPUs as hosts, futexes as semaphores.
//
// usage: load ping-pong ROUNDS | load barrier THREADS ROUNDS
//
// Prints how long the simulation took and how far it came, in seconds. Set-up and exit are not counted.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>
#include <xbt/log.h>

namespace sg4 = simgrid::s4u;

// Flops per second, so that a flop is a nanosecond.
static constexpr double SPEED = 1e9;

static std::vector<sg4::Host*> machine(int hosts)
{
    auto* zone = sg4::create_full_zone("machine");
    std::vector<sg4::Host*> made;
    for (int i = 0; i < hosts; i++)
        made.push_back(zone->create_host("cpu" + std::to_string(i), SPEED));
    zone->seal();
    return made;
}

// Two actors hand a turn to each other, 1 us of computation before each.
static void ping_pong(long rounds)
{
    auto cpus = machine(2);
    auto there = sg4::Semaphore::create(0);
    auto back = sg4::Semaphore::create(0);
    sg4::Actor::create("ping", cpus[0], [=] {
        for (long i = 0; i < rounds; i++) {
            sg4::this_actor::execute(1000);
            there->release();
            back->acquire();
        }
    });
    sg4::Actor::create("pong", cpus[1], [=] {
        for (long i = 0; i < rounds; i++) {
            there->acquire();
            sg4::this_actor::execute(1000);
            back->release();
        }
    });
}

// Actors meet at a barrier after 50 us of computation, the n-th after n us more.
static void barrier(int threads, long rounds)
{
    auto cpus = machine(threads);
    auto meet = sg4::Barrier::create(threads);
    for (int i = 0; i < threads; i++) {
        sg4::Actor::create("thread" + std::to_string(i), cpus[i], [=] {
            for (long round = 0; round < rounds; round++) {
                sg4::this_actor::execute(50000 + 1000 * i);
                meet->wait();
            }
        });
    }
}

int main(int argc, char** argv)
{
    sg4::Engine engine(&argc, argv);
    xbt_log_control_set("root.thresh:error");
    const std::string load = argc > 1 ? argv[1] : "";
    if (load == "ping-pong" && argc == 3) {
        ping_pong(std::atol(argv[2]));
    } else if (load == "barrier" && argc == 4) {
        barrier(std::atoi(argv[2]), std::atol(argv[3]));
    } else {
        std::fprintf(stderr, "usage: load ping-pong ROUNDS | load barrier THREADS ROUNDS\n");
        return 2;
    }
    const auto start = std::chrono::steady_clock::now();
    engine.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%.9f %.9f\n", took.count(), sg4::Engine::get_clock());
    return 0;
}
