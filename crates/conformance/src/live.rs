//! An implementation at the other end of a network interface.
//!
//! A host also needs an *agent* that gives it work: a program that connects the export `conf` and
//! executes orders from its standard input. `conformance/README.md` describes it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::{HEAD, Link, RxBatch, TxVectors};

use crate::{Mac, Result, Subject};

/// Frames received at once.
const BATCH: usize = 64;
/// Time limit for the first frame of an agent that was started, on a machine that has much to do.
const START: Duration = Duration::from_secs(20);
/// Time limit for sending a frame, and for the agent's answer about its counters.
const PATIENCE: Duration = Duration::from_secs(2);

/// A [`Subject`] behind a network interface, in real time. It owns the packet socket, and for a
/// host the agent's process.
pub struct Live {
    link: PacketLink,
    batch: RxBatch,
    came: VecDeque<Vec<u8>>,
    began: Instant,
    /// The command that prints the counters of a target.
    counters: Option<String>,
    /// The command that tells it that the memory of its machine was put back.
    restore: Option<String>,
    agent: Option<Agent>,
}

/// A running agent.
struct Agent {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    said: VecDeque<String>,
}

impl Live {
    /// Opens an interface. `counters` is a shell command that prints, as JSON, how many frames the
    /// target has rejected; `restore` is one that tells the implementation that the memory of its
    /// machine was put back.
    ///
    /// # Errors
    /// If the interface can't be opened.
    pub fn open(
        interface: &str,
        counters: Option<String>,
        restore: Option<String>,
    ) -> Result<Self> {
        let link = PacketLink::open(&PacketOptions::new(interface));
        let link = link.map_err(|error| error.to_string())?;
        let batch = RxBatch::new(BATCH, link.frame_len_max() - HEAD);
        let (came, began) = (VecDeque::new(), Instant::now());
        Ok(Self { link, batch, came, began, counters, restore, agent: None })
    }

    /// Starts over: discards received frames, and starts a new agent for a host, by the shell
    /// command `agent`.
    ///
    /// # Errors
    /// If the agent can't be started.
    pub fn renew(&mut self, agent: Option<&str>) -> Result<()> {
        // The previous agent ends first: it may still send.
        self.agent = None;
        while self.receive(Duration::ZERO)?.is_some() {}
        self.agent = agent.map(Agent::start).transpose()?;
        if self.agent.is_some()
            && let Some(frame) = self.receive(START)?
        {
            // It is the vector that examines it.
            self.came.push_front(frame);
        }
        Ok(())
    }

    fn agent(&mut self) -> Result<&mut Agent> {
        self.agent.as_mut().ok_or_else(|| "there is no agent".to_owned())
    }
}

impl Agent {
    fn start(command: &str) -> Result<Self> {
        let wrong = |error| format!("{command}: {error}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]);
        let mut child =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(wrong)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(format!("{command}: it has no input or output"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(std::result::Result::ok);
            lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        Ok(Self { child, input, lines, said: VecDeque::new() })
    }

    fn order(&mut self, line: &str) -> Result<()> {
        let written = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        written.map_err(|error| format!("the agent takes no orders: {error}"))
    }

    /// The agent's counters: `rejects {"reason": count}`, or `rejects unknown`.
    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>> {
        self.order("rejects")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.map_err(|_| "the agent does not tell its counters".to_owned())?;
            match line.strip_prefix("rejects ") {
                Some("unknown") => return Ok(None),
                Some(counts) => {
                    let counts = serde_json::from_str(counts);
                    return counts.map(Some).map_err(|error| format!("{line}: {error}"));
                }
                None => self.said.push_back(line),
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Subject for Live {
    fn address(&self) -> Mac {
        self.link.mac()
    }

    fn frame_len(&self) -> u32 {
        self.link.frame_len_max() as u32
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let mut vectors = TxVectors::new(1, 1);
        let (head, payload) =
            frame.split_first_chunk::<HEAD>().ok_or("a frame shorter than 64 bytes")?;
        let mut batch = vectors.batch();
        batch.push(head, [payload], &[]);
        let deadline = Instant::now() + PATIENCE;
        while self.link.send(&batch).map_err(|error| format!("send: {error}"))? == 0 {
            if Instant::now() >= deadline {
                return Err("the interface takes no frames".to_owned());
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(frame) = self.came.pop_front() {
                return Ok(Some(frame));
            }
            let received = self.link.receive(&mut self.batch);
            if received.map_err(|error| format!("receive: {error}"))? > 0 {
                let bytes = self.batch.iter().map(|it| [it.head, it.payload].concat());
                self.came.extend(bytes);
                self.batch.clear();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let fd = self.link.wait_fd();
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            poll(&mut fds, Some(&timeout)).map_err(|error| format!("poll: {error}"))?;
        }
    }

    fn order(&mut self, line: &str) -> Result<()> {
        self.agent()?.order(line)
    }

    fn said(&mut self) -> Result<Option<String>> {
        let agent = self.agent()?;
        Ok(agent.said.pop_front().or_else(|| agent.lines.try_recv().ok()))
    }

    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>> {
        if let Some(agent) = &mut self.agent {
            return agent.rejects();
        }
        let Some(command) = &self.counters else { return Ok(None) };
        let output = Command::new("sh").args(["-c", command]).output();
        let output = output.map_err(|error| format!("{command}: {error}"))?;
        let value = serde_json::from_slice(&output.stdout);
        let value: Value = value.map_err(|error| format!("{command}: {error}"))?;
        let mut counts = BTreeMap::new();
        sum(&value, &mut counts);
        Ok(Some(counts))
    }

    fn can_restore(&self) -> bool {
        self.restore.is_some()
    }

    fn restore(&mut self) -> Result<()> {
        let command = self.restore.as_deref().ok_or("no command tells it")?;
        let status = Command::new("sh").args(["-c", command]).status();
        match status.map_err(|error| format!("{command}: {error}"))? {
            status if status.success() => Ok(()),
            status => Err(format!("{command}: {status}")),
        }
    }
}

/// Adds up all objects named `rejects`, at any depth.
fn sum(value: &Value, counts: &mut BTreeMap<String, u64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| sum(item, counts)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_object().filter(|_| name == "rejects") {
                    Some(rejects) => {
                        for (reason, count) in rejects {
                            *counts.entry(reason.clone()).or_default() +=
                                count.as_u64().unwrap_or(0);
                        }
                    }
                    None => sum(value, counts),
                }
            }
        }
        _ => {}
    }
}
