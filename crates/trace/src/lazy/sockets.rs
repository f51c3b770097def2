//! Adapts the sensor of socket traffic to the engine. Loading the programs takes tens of milliseconds, so a thread of
//! its own does it while the control loop goes on.

use std::error::Error;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use gleaner_engine::live::TrafficSensor;
use gleaner_kernel::workload::Members;
use gleaner_policy::Sockets;

use crate::{Directions, Scope, SocketSensor, SocketTraffic, TraceError};

/// The sensor of what the threads of `members` send through sockets.
pub fn traffic_sensor(members: &Members) -> Box<dyn TrafficSensor> {
    let sensor = |scope| BackgroundSocketSensor { scope, state: State::Off };
    Box::new(AllSocketSensors(Scope::of(members).into_iter().map(sensor).collect()))
}

/// One sensor for each scope.
#[derive(Debug)]
struct AllSocketSensors(Vec<BackgroundSocketSensor>);

impl TrafficSensor for AllSocketSensors {
    fn start(&mut self) {
        self.0.iter_mut().for_each(BackgroundSocketSensor::start);
    }

    fn is_ready(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        self.0.iter_mut().try_fold(true, |ready, sensor| Ok(sensor.is_ready()? && ready))
    }

    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.iter_mut().try_for_each(BackgroundSocketSensor::arm)
    }

    fn disarm(&mut self) {
        self.0.iter_mut().for_each(BackgroundSocketSensor::disarm);
    }

    fn stop(&mut self) {
        self.0.iter_mut().for_each(BackgroundSocketSensor::stop);
    }

    fn read(&mut self) -> Option<Sockets> {
        let add = |sum: Sockets, one: Sockets| Sockets {
            messages: sum.messages + one.messages,
            bytes: sum.bytes + one.bytes,
        };
        self.0.iter_mut().try_fold(Sockets::default(), |sum, sensor| Some(add(sum, sensor.read()?)))
    }
}

#[derive(Debug)]
struct BackgroundSocketSensor {
    scope: Scope,
    state: State,
}

#[derive(Debug)]
enum State {
    Off,
    /// Receives the sensor from the thread that loads it. If this end is dropped, so is the sensor.
    Starting(Receiver<Result<SocketSensor, TraceError>>),
    NoThread(io::Error),
    Ready(Box<SocketSensor>),
}

impl BackgroundSocketSensor {
    fn start(&mut self) {
        let (sender, receiver) = sync_channel(1);
        let scope = self.scope.clone();
        let load = move || drop(sender.send(SocketSensor::load(&scope, Directions::Sent)));
        self.state = match thread::Builder::new().name("sockets".to_owned()).spawn(load) {
            Ok(_) => State::Starting(receiver),
            Err(error) => State::NoThread(error),
        };
    }

    fn is_ready(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        if let State::Starting(receiver) = &self.state {
            match receiver.try_recv() {
                Ok(loaded) => self.state = State::Ready(Box::new(loaded?)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err("the thread that loads it has ended".into()),
            }
        }
        match &mut self.state {
            State::NoThread(error) => Err(format!("traffic through sockets: no thread ({error})").into()),
            state => Ok(matches!(state, State::Ready(_))),
        }
    }

    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let State::Ready(sensor) = &mut self.state {
            sensor.arm()?;
        }
        Ok(())
    }

    fn disarm(&mut self) {
        if let State::Ready(sensor) = &mut self.state {
            sensor.disarm();
        }
    }

    fn stop(&mut self) {
        self.state = State::Off;
    }

    fn read(&mut self) -> Option<Sockets> {
        let State::Ready(sensor) = &mut self.state else { return None };
        sensor.read().map(|traffic| sockets(&traffic))
    }
}

fn sockets(traffic: &SocketTraffic) -> Sockets {
    Sockets { messages: traffic.sent_messages, bytes: traffic.sent_bytes }
}
