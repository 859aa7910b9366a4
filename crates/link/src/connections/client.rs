//! A host's end: one connection, renewed whenever it is lost.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tyche_counters::{CounterGroup, Reading};

use super::{Broken, CLIENT, Carrier, Connection, ConnectionOptions, ConnectionStats, Counts};
use super::{Readiness, SERVER, sendable};
use crate::ip::{OpenError, Transport};
use crate::{Interface, Link, Placement, RxBatch, TxBatch};

/// The longest wait for one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The least time between the starts of two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// The key of the only connection.
const KEY: u64 = 0;

/// A link over one connection, for a host.
///
/// Without a connection, calls fail with `NetworkDown`, and each call advances the next attempt
/// without waiting; so to get the connection back, call [`receive`](Link::receive) from time to
/// time. The addresses are tried round robin.
pub struct Client<C: Carrier> {
    name: String,
    addresses: Vec<SocketAddr>,
    /// Index of the connected address, or of the one tried last.
    turn: usize,
    options: C::Options,
    shared: C::Shared,
    state: State<C>,
    /// The start of the last attempt.
    tried: Instant,
    readiness: Readiness,
    stats: ConnectionStats,
    /// The counters of connections that have ended.
    ended: Counts<C>,
}

enum State<C: Carrier> {
    Up(Box<C::Connection>),
    Connecting(C::Attempt),
    Down(io::Error),
}

impl<C: Carrier> Client<C> {
    /// Connects to the first of `addresses` that answers. Waits up to three seconds for each.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    pub fn connect(addresses: &[SocketAddr], options: &C::Options) -> Result<Self, OpenError> {
        let readiness = Readiness::new().map_err(OpenError::system("epoll"))?;
        let failed = |transport, address, source| OpenError::Connect { transport, address, source };
        let (turn, opened) = C::TRANSPORT.first(addresses, options, dial::<C>, failed)?;
        let mut link = Self {
            name: format!("{}:{}", C::TRANSPORT.name, addresses[turn]),
            addresses: addresses.to_vec(),
            turn,
            options: options.clone(),
            shared: C::share(),
            state: State::Down(io::ErrorKind::NotConnected.into()),
            tried: Instant::now(),
            readiness,
            stats: ConnectionStats::default(),
            ended: Counts::<C>::default(),
        };
        link.open(opened).map_err(OpenError::system("opening the connection"))?;
        Ok(link)
    }

    /// Returns the error counters since the link opened.
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }

    fn open(&mut self, opened: C::Opened) -> io::Result<()> {
        let link = (&self.options, &self.shared);
        let connection = C::open(opened, link, SERVER, (&self.readiness, KEY))?;
        self.state = State::Up(Box::new(connection));
        Ok(())
    }

    /// The connection; without one, advances the attempt and returns its result.
    fn connection(&mut self) -> io::Result<&mut C::Connection> {
        if !matches!(self.state, State::Up(_)) {
            self.reconnect()?;
        }
        if !matches!(self.state, State::Up(_)) {
            return Err(self.down());
        }
        let State::Up(connection) = &mut self.state else { unreachable!("looked at above") };
        Ok(connection)
    }

    /// Advances the attempt to connect as far as possible without waiting.
    fn reconnect(&mut self) -> io::Result<()> {
        if matches!(self.state, State::Down(_)) && self.tried.elapsed() >= CONNECT_PAUSE {
            self.tried = Instant::now();
            self.turn = (self.turn + 1) % self.addresses.len();
            self.state = match C::connect(&self.addresses[self.turn], &self.options) {
                Ok(attempt) => State::Connecting(attempt),
                Err(error) => State::Down(error),
            };
        }
        let down = State::Down(io::ErrorKind::NotConnected.into());
        self.state = match std::mem::replace(&mut self.state, down) {
            State::Connecting(attempt) => match C::advance(attempt, Duration::ZERO) {
                Ok(ControlFlow::Break(opened)) => return self.open(opened),
                Ok(ControlFlow::Continue(_)) if self.tried.elapsed() >= CONNECT_MAX => {
                    State::Down(io::ErrorKind::TimedOut.into())
                }
                Ok(ControlFlow::Continue(attempt)) => State::Connecting(attempt),
                Err(error) => State::Down(error),
            },
            state => state,
        };
        Ok(())
    }

    /// Drops the broken connection and the frames in it.
    fn lose(&mut self, broken: Broken) -> io::Error {
        let error = match broken {
            Broken::Malformed => {
                self.stats.malformed += 1;
                io::Error::new(io::ErrorKind::InvalidData, "the peer does not speak Tyche")
            }
            Broken::Gone(error) => error,
        };
        if let State::Up(ended) = std::mem::replace(&mut self.state, State::Down(error)) {
            self.ended += ended.counts();
        }
        self.down()
    }

    fn down(&self) -> io::Error {
        let why = match &self.state {
            State::Down(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "the target ended the connection".to_owned()
            }
            State::Down(error) => error.to_string(),
            State::Connecting(_) => "connecting".to_owned(),
            State::Up(_) => unreachable!("asked for when there is no connection"),
        };
        let message = format!("no connection to {}: {why}", self.addresses[self.turn]);
        io::Error::new(io::ErrorKind::NetworkDown, message)
    }

    /// Updates the events that the descriptor signals.
    fn settle(&mut self) -> io::Result<()> {
        let State::Up(connection) = &mut self.state else {
            return self.readiness.set_backlog(false);
        };
        connection.watch(&self.readiness, KEY)?;
        self.readiness.set_backlog(connection.has_backlog())
    }
}

impl<C: Carrier> Link for Client<C> {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: CLIENT }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(C::TRANSPORT)
    }

    fn frame_len_max(&self) -> usize {
        self.options.frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.options.capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        let connection = self.connection()?;
        // Trying the only connection costs no more than polling for readiness.
        let served = connection.ready().map_err(Broken::from);
        let result = served.and_then(|()| connection.receive(batch));
        let result = result.map_err(|broken| self.lose(broken));
        self.settle()?;
        match result {
            // Frames before the end are delivered; the next call returns the error.
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch.len()),
        }
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let count = sendable(batch, self.frame_len_max())?;
        let result = self.connection()?.send(batch.frames().take(count));
        let result = result.map_err(|error| self.lose(error.into()));
        self.settle()?;
        result
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        if let State::Up(connection) = &self.state
            && !connection.may_sleep()
        {
            self.readiness.raise();
        }
        self.readiness.as_fd()
    }

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        C::placement(&self.shared)
    }

    fn counters(&self) -> Vec<Reading> {
        let mut counts = self.ended;
        if let State::Up(connection) = &self.state {
            counts += connection.counts();
        }
        self.stats.iter().chain(counts.iter()).collect()
    }
}

impl<C: Carrier> std::fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.name)
    }
}

/// Connects, or returns the error. Waits.
fn dial<C: Carrier>(address: &SocketAddr, options: &C::Options) -> io::Result<C::Opened> {
    let deadline = Instant::now() + CONNECT_MAX;
    let mut attempt = C::connect(address, options)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        attempt = match C::advance(attempt, left)? {
            ControlFlow::Break(opened) => return Ok(opened),
            ControlFlow::Continue(_) if left.is_zero() => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            ControlFlow::Continue(attempt) => attempt,
        }
    }
}
