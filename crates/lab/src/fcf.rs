//! `tyche-lab fcf`: a forwarder of Fibre Channel over Ethernet, for a fabric without a switch.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::SIGHUP;
use tyche_console::error::{Code, Context, Error, Result};
use tyche_console::output::announce;
use tyche_engine::{Composed, EventLoop, FrameSink, Frames, Ports, Protocol, Received, Service};
use tyche_fcf::{Fcf, FcfConfig, MEMBERSHIPS, QUEUE_MAX};
use tyche_fcoe::fc::wire::{ETHERNET_LEN, ETHERTYPE_FIP};
use tyche_fcoe::{FCOE, FIP, Interface};
use tyche_link::Mac as LinkMac;
use tyche_numa::NumaAffinity;
use tyche_time::Instant;
use tyche_wake::Spin;

/// Forward the frames of Fibre Channel over Ethernet between all nodes on an interface's Ethernet,
/// as a switch for it would (FCF): nodes log in here, and find each other by the name server. There
/// are no zones and no access lists. Runs until it is stopped.
///
/// SIGHUP ends all logins (Clear Virtual Link).
#[derive(Args, Debug)]
pub(crate) struct FcfArgs {
    /// The interface, such as a bridge that the nodes are on.
    interface: String,

    /// The lower, the better: nodes choose the best forwarder.
    #[arg(long, value_name = "NUMBER", default_value_t = 128)]
    priority: u8,

    /// The upper byte of the N_Port_IDs that it grants; by default another each time, because nodes
    /// that have not missed the former one still have addresses of that.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=239))]
    domain: Option<u8>,

    /// The interval of advertisements and keep alives, 0.25 to 90.
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0, value_parser = period)]
    period: f64,

    /// E_D_TOV of the fabric, 0.05 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = e_d_tov)]
    e_d_tov: f64,
}

fn period(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.25..=90.0).contains(seconds));
    seconds.ok_or_else(|| "0.25 to 90 seconds".into())
}

fn e_d_tov(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=60.0).contains(seconds));
    seconds.ok_or_else(|| "0.05 to 60 seconds".into())
}

pub(crate) fn run(args: &FcfArgs) -> Result<()> {
    let link = |error: &dyn std::error::Error| Error::new(Code::Link, error.to_string());
    let interface =
        Interface::open_for_switch(&args.interface, QUEUE_MAX).map_err(|error| link(&error))?;
    let mut config = FcfConfig::new(interface.mac());
    let changing = (std::process::id() % 239 + 1) as u8;
    (config.priority, config.domain) = (args.priority, args.domain.unwrap_or(changing));
    config.period = Duration::from_secs_f64(args.period);
    config.e_d_tov = Duration::from_secs_f64(args.e_d_tov);
    let mut ports = interface.into_ports(&NumaAffinity::default());
    join(&mut ports).map_err(|error| link(&error))?;
    let is_cleared = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&is_cleared)).map_err(|error| link(&error))?;
    let forwarder = Forwarder { fcf: Fcf::new(config), queues: Default::default(), is_cleared };
    let text = format!("tyche-lab: forwarding on {} ({})\n", args.interface, config.mac);
    announce(&text).context(Code::Other, "standard output")?;
    EventLoop::new(forwarder, ports, Spin::new(Duration::ZERO)).run();
    Ok(())
}

fn join(ports: &mut Ports) -> io::Result<()> {
    for (index, port) in ports.iter_mut() {
        for group in MEMBERSHIPS.iter().filter(|_| index == FIP) {
            port.join(group.0)?;
        }
    }
    Ok(())
}

/// The forwarder as the protocol of a loop.
struct Forwarder {
    fcf: Fcf,
    /// By port.
    queues: [Queue; 2],
    is_cleared: Arc<AtomicBool>,
}

/// Frames to send.
#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    /// The number of the first of them that have been sent.
    sent: usize,
}

impl Forwarder {
    fn drain(&mut self) {
        while let Some(frame) = self.fcf.poll_transmit() {
            let is_fip = frame[12..14] == ETHERTYPE_FIP.to_be_bytes();
            self.queues[if is_fip { FIP } else { FCOE }].frames.push_back(frame);
        }
    }
}

impl Protocol for Forwarder {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        self.fcf.handle_frame(now, &[frame.head, frame.payload].concat());
        self.drain();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.fcf.handle_timeout(now);
        self.drain();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.fcf.poll_timeout()
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        let Queue { frames, sent } = &mut self.queues[port];
        frames.drain(..std::mem::take(sent));
        Composing { frames, sent }
    }
}

impl Service for Forwarder {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn work(&mut self, _: Instant) -> bool {
        let is_cleared = self.is_cleared.swap(false, Ordering::Relaxed);
        if is_cleared {
            self.fcf.clear();
            self.drain();
        }
        is_cleared
    }

    fn is_over(&self) -> bool {
        false
    }
}

struct Composing<'d> {
    frames: &'d VecDeque<Vec<u8>>,
    sent: &'d mut usize,
}

impl<'d> Frames<'d> for Composing<'d> {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        let is_there = *self.sent < self.frames.len();
        *self.sent += usize::from(is_there);
        is_there.then(Composed::default)
    }

    fn write(&mut self, _: LinkMac, sink: impl FrameSink<'d>) {
        let (front, rest) = self.frames[*self.sent - 1].split_at(ETHERNET_LEN);
        sink.gather(front, &[rest], &[]);
    }
}
