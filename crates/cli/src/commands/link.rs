//! `tyche link`: the links of a live session.

use clap::{Args, Subcommand};

use crate::output::{Format, show};
use crate::shared::complete;
use crate::shared::control::SessionRequest;
use crate::shared::error::Result;
use crate::shared::report::Output;
use crate::shared::sessions::order;
use crate::shared::state::State;

/// Add links to a live session, or take them out of it, without a pause for its requests.
#[derive(Args, Debug)]
pub(crate) struct LinkCommand {
    #[command(subcommand)]
    action: Action,

    /// How to print.
    #[arg(short, long, default_value_t, global = true)]
    pub(crate) output: Format,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Use another interface, too. Channels open as soon as the target is heard on it.
    Add(LinkArgs),
    /// Stop using an interface. Its requests in flight move to the other links. The last link can't
    /// be removed.
    Del(Used),
}

#[derive(Args, Debug)]
struct Used {
    /// The export, the session's UUID (or how it begins), or the device.
    #[arg(add = complete::connected())]
    name: String,

    /// The interface, or udp:, tcp: or rdma:HOST:PORT, as `tyche list` shows it.
    #[arg(add = complete::used_links())]
    link: String,
}

#[derive(Args, Debug)]
struct LinkArgs {
    /// The export, the session's UUID (or how it begins), or the device.
    #[arg(add = complete::connected())]
    name: String,

    /// The interface, or udp:, tcp: or rdma:HOST:PORT, as `tyche list` shows it.
    #[arg(add = complete::interfaces())]
    link: String,
}

pub(crate) fn run(command: &LinkCommand) -> Result<()> {
    let (name, link, request) = match &command.action {
        Action::Add(LinkArgs { name, link }) => {
            (name, link, SessionRequest::AddLink { link: link.clone() })
        }
        Action::Del(Used { name, link }) => {
            (name, link, SessionRequest::RemoveLink { link: link.clone() })
        }
    };
    let State { session, export, .. } = order(name, &request)?;
    let output = || Output::Link { session, export, link: link.clone() };
    show(command.output, output, String::new)
}
