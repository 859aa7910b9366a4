//! A port whose service can be changed, asked to wait, and looked at.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use tyche_control::{
    Admin, Attending, Caller, Client, ClientError, Identity, Limits, Port, Service,
};
use tyche_crypto::{PublicKey, SecretKey};
use tyche_testkit::wait::PATIENCE;

/// Time limits that are reached only by what hangs, however busy the machine.
pub(crate) fn patient() -> Limits {
    let admins = Attending { request: PATIENCE, idle: PATIENCE, answer: PATIENCE };
    Limits { handshake: PATIENCE, admins, ..Limits::default() }
}

/// A request that is answered once the test says so.
pub(crate) const WAIT: &[u8] = b"wait";

/// Answers with the admin's name and the request.
pub(crate) struct Echo {
    admins: Mutex<BTreeMap<PublicKey, Admin>>,
    refused: Mutex<Vec<PublicKey>>,
    began: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Service for Echo {
    fn admin(&self, key: &PublicKey) -> Option<Admin> {
        self.admins.lock().unwrap().get(key).cloned()
    }

    fn answer(&self, caller: &Caller, request: &[u8]) -> Vec<u8> {
        if request == WAIT {
            self.began.send(()).unwrap();
            self.go.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        [caller.admin.name.as_bytes(), b": ", request].concat()
    }

    fn refused(&self, key: &PublicKey, _address: SocketAddr) {
        self.refused.lock().unwrap().push(*key);
    }

    fn failed(&self, error: &io::Error) {
        panic!("{error}");
    }
}

pub(crate) struct Rig {
    pub(crate) port: Port,
    pub(crate) echo: Arc<Echo>,
    pub(crate) target: PublicKey,
    pub(crate) admin: SecretKey,
    pub(crate) reader: SecretKey,
    /// Told that a request waits.
    pub(crate) begun: Receiver<()>,
    /// Lets it go on.
    pub(crate) go: Sender<()>,
}

impl Rig {
    pub(crate) fn new(limits: Limits) -> Self {
        let [target, admin, reader] = [1, 2, 3].map(|it| SecretKey::from_random([it; 32]));
        let known = |secret: &SecretKey, name: &str, read_only| {
            (secret.public(), Admin { name: name.to_owned(), read_only })
        };
        let admins = [known(&admin, "ops", false), known(&reader, "monitor", true)];
        let ((began, begun), (go, going)) = (channel(), channel());
        let echo = Arc::new(Echo {
            admins: Mutex::new(admins.into()),
            refused: Mutex::default(),
            began,
            go: Mutex::new(going),
        });
        let identity = Identity { uuid: [7; 16], name: "store1".into() };
        let any = "127.0.0.1:0".parse().unwrap();
        let public = target.public();
        let service: Arc<dyn Service> = Arc::<Echo>::clone(&echo);
        let port = Port::open(any, (vec![target], identity), limits, service).unwrap();
        Self { port, echo, target: public, admin, reader, begun, go }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address().unwrap()
    }

    pub(crate) fn connect(&self, key: &SecretKey) -> Result<Client, ClientError> {
        Client::connect(&[self.address()], (key, &self.target), PATIENCE)
    }

    /// Connects from another address of the loopback interface, once.
    pub(crate) fn connect_from(&self, address: &str) -> Result<Client, ClientError> {
        let stream = dial_from(address.parse().unwrap(), self.address()).unwrap();
        Client::over(stream, (&self.admin, &self.target), Instant::now() + PATIENCE)
    }

    pub(crate) fn dismiss(&self, key: &SecretKey) {
        self.echo.admins.lock().unwrap().remove(&key.public());
        self.port.close_former();
    }

    pub(crate) fn refused(&self) -> Vec<PublicKey> {
        self.echo.refused.lock().unwrap().clone()
    }
}

/// Connects from that address of this machine.
pub(crate) fn dial_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let kind = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::INET, kind.0, kind.1, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}
