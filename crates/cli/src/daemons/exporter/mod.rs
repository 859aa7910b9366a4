//! `tyche exporter`: the metrics of all sessions and targets of this machine, for Prometheus, and a
//! page for people.
//!
//! ```text
//!  Prometheus, browser --GET--> server --> looks --report?--> daemons of sessions and targets
//!                                 |
//!                                 +--> metrics: families <- derived <- tables of counters
//!                                 +--> page
//! ```
//! It keeps nothing but the last two looks. A daemon that does not answer is a metric as well.

mod connection;
mod definitions;
mod derived;
mod families;
mod html;
mod links;
mod looks;
mod metrics;
mod page;
mod rates;
mod request;
#[cfg(test)]
mod sample;
mod server;
mod sessions;
mod targets;
mod textfile;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::announce;
use crate::shared::error::{Code, Context, Result};
use looks::{Look, Looks};
use metrics::Form;
use request::{Request, Response};
use server::{Answer, Listener};

/// The port, beside that of Tyche over UDP and TCP.
const PORT: u16 = 9652;

/// Export the state of all sessions and targets of this machine as metrics for Prometheus.
///
/// Asks every daemon at each request, and keeps nothing. `/metrics` has the metrics, `/` a page for
/// people. There is no password and no encryption: listen where only those can reach it who may
/// know.
#[derive(Args, Debug)]
pub(crate) struct ExporterArgs {
    /// Answer at this address; may be repeated. By default 127.0.0.1:9652, unless another place is
    /// named.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,

    /// Answer at a Unix socket of this path.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,

    /// Write the metrics to this file once, and end: for node_exporter's textfile collector, by a
    /// timer. Its name must end with `.prom` there.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "unix"])]
    textfile: Option<PathBuf>,
}

pub(crate) fn run(args: &ExporterArgs) -> Result<()> {
    match &args.textfile {
        Some(path) => write_once(path),
        None => serve(args),
    }
}

fn write_once(path: &Path) -> Result<()> {
    let text = metrics::write(&Look::new()?, Form::Prometheus)?;
    textfile::write(path, &text).context(Code::Other, path.display())
}

fn serve(args: &ExporterArgs) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let mut listeners = Vec::new();
    for address in addresses(args) {
        listeners.push(Listener::tcp(address)?);
    }
    if let Some(path) = &args.unix {
        listeners.push(Listener::unix(path)?);
    }
    let places: Result<Vec<_>> =
        listeners.iter().map(|it| it.place().context(Code::Other, "address")).collect();
    let (connections, answer) = (Arc::default(), answer());
    for listener in listeners {
        server::serve(listener, &connections, &answer).context(Code::Other, "a thread")?;
    }
    let exporting = format!("exporting at {}", places?.join(", "));
    if let Err(error) = announce(&format!("tyche: {exporting}\n")) {
        tracing::warn!("{exporting}, which can't be printed: {error}");
    }
    // Fails only if the supervisor that asked for it is gone.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    signals.forever().next();
    if let Some(path) = &args.unix {
        // Another exporter removes it, otherwise.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The addresses to listen at.
fn addresses(args: &ExporterArgs) -> Vec<SocketAddr> {
    match (&args.listen[..], &args.unix) {
        ([], None) => vec![(Ipv4Addr::LOCALHOST, PORT).into()],
        (given, _) => given.to_vec(),
    }
}

/// The answers to requests.
fn answer() -> Answer {
    let looks = Looks::default();
    Arc::new(move |request: &Request| {
        respond(&looks, request).unwrap_or_else(|error| {
            Response::plain("500 Internal Server Error", &error.to_string())
        })
    })
}

fn respond(looks: &Looks, request: &Request) -> Result<Response> {
    match request.path.as_str() {
        "/metrics" => {
            let (content_type, body) =
                (request.form.content_type(), metrics::write(&looks.look()?.0, request.form)?);
            Ok(Response { status: "200 OK", content_type, body })
        }
        "/" => {
            let (now, before) = looks.look()?;
            let body = page::write(&now, before.as_deref());
            Ok(Response { status: "200 OK", content_type: "text/html; charset=utf-8", body })
        }
        _ => Ok(Response::plain("404 Not Found", "there are / and /metrics")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::Cli;
    use crate::Command;

    fn parsed(line: &str) -> std::result::Result<Vec<String>, clap::error::ErrorKind> {
        let line = format!("tyche exporter {line}");
        let matches = Cli::command().try_get_matches_from(line.split_whitespace());
        match Cli::from_arg_matches(&matches.map_err(|error| error.kind())?).unwrap().command {
            Command::Exporter(args) => {
                Ok(addresses(&args).iter().map(ToString::to_string).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_listens_at_this_machine_only_unless_told_otherwise() {
        assert_eq!(parsed("").unwrap(), ["127.0.0.1:9652"]);
        assert_eq!(parsed("--unix /run/x").unwrap(), [""; 0]);
        let several = "--listen [::]:1 --listen 10.0.0.1:2 --unix /run/x";
        assert_eq!(parsed(several).unwrap(), ["[::]:1", "10.0.0.1:2"]);
        let conflict = clap::error::ErrorKind::ArgumentConflict;
        assert_eq!(parsed("--textfile a.prom --listen [::]:1"), Err(conflict));
    }
}
