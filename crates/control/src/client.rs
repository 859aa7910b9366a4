//! The admin's side.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use tyche_crypto::{PublicKey, SecretKey};

use crate::handshake::{self, CHALLENGE_LEN, Identity, VERDICT_LEN, Verdict};
use crate::record::{ANSWER_MAX, Broken, REQUEST_MAX, Records};
use crate::wire::Wire;

/// Attempts for an admin that had to go for others before it was heard, and the pause between two
/// of them at the least; up to twice as long.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit for the rest of an answer that has begun.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why a target does not answer a request.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody takes the connection.
    #[error("{address}: {error}")]
    Unreachable {
        /// The last address that was tried.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The name has no address.
    #[error("the name has no address")]
    NoAddress,
    /// Something else listens there.
    #[error("what answers there is no control port of a target, or one of another version")]
    Stranger,
    /// The connection ends before the target has said anything of itself.
    #[error(
        "the connection is closed without an answer: the target has another key, or it is busy"
    )]
    Closed,
    /// The target does not answer in time.
    #[error("no answer in time")]
    Late,
    /// The answer is not the target's.
    #[error("the answer is forged, or of another version")]
    Forged,
    /// The target knows no admin with this key.
    #[error("the target knows no admin with this key")]
    Unknown,
    /// The target has too many admins at the moment.
    #[error("too many admins ask the target at this moment")]
    Busy,
    /// A request is longer than a target takes.
    #[error("the request is longer than 64 KiB")]
    TooLong,
    /// The connection has ended before the answer was here.
    #[error("the connection ended before the answer was here ({0})")]
    Lost(io::Error),
}

impl ClientError {
    /// True if the guest may have had to go for others.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Closed | Self::Busy)
    }
}

impl From<Broken> for ClientError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Closed => Self::Lost(io::ErrorKind::UnexpectedEof.into()),
            Broken::Late => Self::Late,
            Broken::Forged | Broken::TooLong => Self::Forged,
            Broken::Io(error) => Self::Lost(error),
        }
    }
}

/// A connection to a target that has proved its key.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    records: Records,
    identity: Identity,
    verdict: Verdict,
}

impl Client {
    /// Connects to the first of these addresses that takes it, as the owner of `keys.0`, to the
    /// target with the key `keys.1`. Tries again if others leave it no place.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn connect(
        addresses: &[SocketAddr],
        keys: (&SecretKey, &PublicKey),
        limit: Duration,
    ) -> Result<Self, ClientError> {
        let until = Instant::now() + limit;
        let mut attempt = 1;
        loop {
            let stream = dial(addresses, until)?;
            match Self::over(stream, keys, until) {
                Err(error) if error.is_passing() && attempt < ATTEMPTS => attempt += 1,
                connected => return connected,
            }
            let [random] = random().unwrap_or([0]);
            thread::sleep(PAUSE + PAUSE * u32::from(random) / 256);
        }
    }

    /// The same over a connection that is there.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn over(
        stream: TcpStream,
        keys: (&SecretKey, &PublicKey),
        until: Instant,
    ) -> Result<Self, ClientError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => ClientError::Late,
            _ => ClientError::Closed,
        };
        // Each message is written as a whole.
        let _ = stream.set_nodelay(true);
        let mut wire = &stream;
        let mut challenge = [0; CHALLENGE_LEN];
        wire.read(&mut challenge, until).map_err(failed)?;
        if !handshake::is_challenge(&challenge) {
            return Err(ClientError::Stranger);
        }
        let ephemeral = random().map_err(ClientError::Lost)?;
        let (mut initiator, hello) = handshake::hello(keys, &challenge, ephemeral);
        wire.write(&hello, until).map_err(failed)?;
        let mut message = [0; VERDICT_LEN];
        wire.read(&mut message, until).map_err(failed)?;
        let finished = handshake::finish(&mut initiator, &message);
        let (verdict, identity, secrets) = finished.ok_or(ClientError::Forged)?;
        match verdict {
            Verdict::Unknown => Err(ClientError::Unknown),
            Verdict::Busy => Err(ClientError::Busy),
            Verdict::Reads | Verdict::Changes => {
                Ok(Self { stream, records: Records::of_admin(&secrets), identity, verdict })
            }
        }
    }

    /// UUID and name of the target, as it has said under its key.
    pub fn target(&self) -> &Identity {
        &self.identity
    }

    /// True if this admin may look, and change nothing.
    pub fn is_read_only(&self) -> bool {
        self.verdict == Verdict::Reads
    }

    /// Asks the target. `limit`: until its answer begins.
    ///
    /// # Errors
    /// See [`ClientError`]. The connection is of no use then.
    pub fn ask(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, ClientError> {
        if request.len() > REQUEST_MAX {
            return Err(ClientError::TooLong);
        }
        let until = Instant::now() + limit;
        let mut wire = &self.stream;
        self.records.send(&mut wire, request, until)?;
        Ok(self.records.receive(&mut wire, ANSWER_MAX, until, ANSWER_TIMEOUT)?)
    }
}

/// Random bytes of the system.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Connects to the first address that takes it; each gets its part of the time.
fn dial(addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, ClientError> {
    let mut failed = ClientError::NoAddress;
    for (index, &address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let part = left / (addresses.len() - index) as u32;
        match TcpStream::connect_timeout(&address, part.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = ClientError::Unreachable { address, error },
        }
    }
    Err(failed)
}
