//! A host's end: one connection, renewed whenever it is lost.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tyche_counters::{CounterGroup, Reading};

use super::connection::{Broken, Connection};
use super::readiness::Readiness;
use super::{CLIENT, FRAME_LEN_MAX, SERVER, TRANSPORT, TcpOptions, TcpStats};
use super::{capacity, sendable, socket};
use crate::ip::{OpenError, Transport};
use crate::{Interface, Link, RxBatch, TxBatch};

/// The longest wait for one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The least time between the starts of two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// The key of the only socket.
const KEY: u64 = 0;

/// A link over one TCP connection, for a host.
///
/// Without a connection, calls fail with `NetworkDown`, and each call advances the next attempt
/// without waiting; so to get the connection back, call [`receive`](Link::receive) from time to
/// time. The addresses are tried round robin.
pub struct TcpClient {
    name: String,
    addresses: Vec<SocketAddr>,
    /// Index of the connected address, or of the one tried last.
    turn: usize,
    options: TcpOptions,
    state: State,
    /// The start of the last attempt.
    tried: Instant,
    readiness: Readiness,
    stats: TcpStats,
}

enum State {
    Up(Box<Connection>),
    Connecting(OwnedFd),
    Down(io::Error),
}

impl TcpClient {
    /// Connects to the first of `addresses` that answers. Waits up to three seconds for each.
    ///
    /// # Errors
    /// The reason why the last of them fails, with a remedy.
    pub fn connect(addresses: &[SocketAddr], options: &TcpOptions) -> Result<Self, OpenError> {
        let readiness = Readiness::new().map_err(OpenError::system("epoll"))?;
        let failed = |transport, address, source| OpenError::Connect { transport, address, source };
        let (turn, socket) = TRANSPORT.first(addresses, options, dial, failed)?;
        let mut link = Self {
            name: format!("tcp:{}", addresses[turn]),
            addresses: addresses.to_vec(),
            turn,
            options: options.clone(),
            state: State::Connecting(socket),
            tried: Instant::now(),
            readiness,
            stats: TcpStats::default(),
        };
        link.finish().map_err(OpenError::system("epoll_ctl"))?;
        Ok(link)
    }

    /// Returns the error counters since the link opened.
    pub fn stats(&self) -> TcpStats {
        self.stats
    }

    /// The connection; without one, advances the attempt and returns its result.
    fn connection(&mut self) -> io::Result<&mut Connection> {
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
            self.state = match socket::connect(&self.addresses[self.turn], &self.options) {
                Ok(socket) => State::Connecting(socket),
                Err(error) => State::Down(error),
            };
        }
        if let State::Connecting(socket) = &self.state {
            if is_decided(socket, Duration::ZERO)? {
                return self.finish();
            }
            if self.tried.elapsed() >= CONNECT_MAX {
                self.state = State::Down(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Completes a decided attempt to connect.
    fn finish(&mut self) -> io::Result<()> {
        let down = State::Down(io::ErrorKind::NotConnected.into());
        let State::Connecting(socket) = std::mem::replace(&mut self.state, down) else {
            unreachable!("only an attempt is finished")
        };
        self.state = match socket::connected(&socket) {
            Ok(()) => {
                self.readiness.add(&socket, KEY)?;
                State::Up(Box::new(Connection::new(socket, SERVER)?))
            }
            Err(error) => State::Down(error),
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
        self.state = State::Down(error);
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
        connection.watch_output(&self.readiness, KEY)?;
        self.readiness.set_backlog(connection.has_backlog())
    }
}

impl Link for TcpClient {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: CLIENT }
    }

    fn transport(&self) -> Option<&'static Transport> {
        Some(&TRANSPORT)
    }

    fn frame_len_max(&self) -> usize {
        FRAME_LEN_MAX
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        batch.clear();
        let connection = self.connection()?;
        // Trying the only socket costs no more than polling for readiness.
        let flushed = connection.ready().map_err(Broken::from);
        let result = flushed.and_then(|()| connection.receive(batch));
        let result = result.map_err(|broken| self.lose(broken));
        self.settle()?;
        match result {
            // Frames before the end are delivered; the next call returns the error.
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch.len()),
        }
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let count = sendable(batch)?;
        let result = self.connection()?.send(batch.frames().take(count));
        let result = result.map_err(|error| self.lose(error.into()));
        self.settle()?;
        result
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn counters(&self) -> Vec<Reading> {
        self.stats.iter().collect()
    }
}

impl std::fmt::Debug for TcpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpClient({})", self.name)
    }
}

/// Connects, or returns the error. Waits.
fn dial(address: &SocketAddr, options: &TcpOptions) -> io::Result<OwnedFd> {
    let socket = socket::connect(address, options)?;
    if !is_decided(&socket, CONNECT_MAX)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket::connected(&socket)?;
    Ok(socket)
}

/// Whether an attempt to connect succeeds or fails within `timeout`.
fn is_decided(socket: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
