//! Answers to our requests.

use std::time::Duration;

use tyche_fc_wire::Header;
use tyche_fc_wire::els::{Code, FabricLogin, Features, Process, Rejection, Reply};
use tyche_time::Instant;

use super::Logins;
use super::outputs::{Cause, Event, Failure};
use super::peer::{Stage, in_unit};
use super::requests::{functions, is_usable, retries};
use crate::Rules;

impl<R: Rules> Logins<R> {
    /// Takes an answer of a neighbour. False if it is not to one of our requests: it may be to one
    /// of an exchange.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        index: usize,
        header: &Header,
        payload: &[u8],
    ) -> bool {
        if !self.numbers.has(header.ox_id) {
            return false;
        }
        let peer = &mut self.peers[index];
        let Some(code) = peer.request().filter(|_| peer.ox_id == Some(header.ox_id)) else {
            self.outputs.ignored.unexpected += 1;
            return true;
        };
        let Ok(reply) = Reply::parse(code, payload) else {
            // The right one may still come.
            self.outputs.ignored.malformed += 1;
            return true;
        };
        (peer.ox_id, peer.at) = (None, None);
        match (code, reply) {
            (_, Reply::Refused(rejection)) => self.refused(now, index, code, rejection),
            (_, Reply::FabricLogin(login)) => self.handle_flogi_reply(now, index, &login),
            (_, Reply::PortLogin(login)) => {
                if is_usable(&login, self.peers[index].neighbour.wwpn) {
                    self.logged_in(now, index, &login);
                } else {
                    self.fail(now, index, Failure::Unusable);
                }
            }
            (_, Reply::Process(process)) => self.handle_prli_reply(now, index, &process),
            (_, Reply::Timeouts(timeouts)) => {
                let r_a_tov = Duration::from_millis(timeouts.r_a_tov_ms.into());
                let e_d_tov = in_unit(timeouts.e_d_tov, timeouts.e_d_tov_ns);
                let login = self.peers[index].login.as_mut().expect("RTV comes after PLOGI");
                login.extend(r_a_tov, e_d_tov);
                self.agree(now, index);
            }
            (_, Reply::Adisc(adisc)) if adisc.wwpn == self.peers[index].neighbour.wwpn => {
                if self.lacks(index).target {
                    self.begin(now, index, Stage::Prli);
                } else {
                    self.settle(now, index);
                }
            }
            _ => self.fail(now, index, Failure::Unusable),
        }
        true
    }

    fn refused(&mut self, now: Instant, index: usize, code: Code, rejection: Rejection) {
        let peer = &mut self.peers[index];
        match rejection.reason {
            // Ours crossed theirs, or they have got it already: theirs comes.
            Rejection::IN_PROGRESS if code == Code::Plogi => self.await_plogi(now, index),
            // The other end has no time, does not know us yet, or is still ending our former login.
            Rejection::BUSY | Rejection::IN_PROGRESS | Rejection::FIP => {
                if peer.repeats < super::REPEATS_MAX {
                    self.set_timer(index, now + self.config.e_d_tov);
                } else {
                    self.fail(now, index, Failure::Refused(rejection));
                }
            }
            // It has forgotten the login. FLOGI and PLOGI need none: they fail.
            _ if rejection.explanation == Rejection::NOT_LOGGED_IN
                && matches!(code, Code::Prli | Code::Rtv) =>
            {
                let (wwpn, is_reported) = (peer.neighbour.wwpn, peer.is_reported);
                let failed = Event::Failed(wwpn, code, Failure::Refused(rejection));
                self.outputs.events.push_back(failed);
                if is_reported {
                    self.end(now, index, Cause::Anew, None);
                } else {
                    // It may do so each time.
                    self.pause(index, now + self.config.e_d_tov);
                }
            }
            _ => self.fail(now, index, Failure::Refused(rejection)),
        }
    }

    fn handle_flogi_reply(&mut self, now: Instant, index: usize, login: &FabricLogin) {
        let wwpn = self.peers[index].neighbour.wwpn;
        if login.wwpn != wwpn || login.features.has(Features::F_PORT) {
            self.fail(now, index, Failure::Unusable);
        } else {
            self.known(now, index);
        }
    }

    /// Both ends know each other by FLOGI. The one with the higher name goes on.
    pub(super) fn known(&mut self, now: Instant, index: usize) {
        if self.config.wwpn > self.peers[index].neighbour.wwpn {
            self.begin(now, index, Stage::Plogi);
        } else {
            self.await_plogi(now, index);
        }
    }

    fn await_plogi(&mut self, now: Instant, index: usize) {
        self.peers[index].stage = Stage::PlogiWait;
        self.set_timer(index, now + 2 * self.config.r_a_tov);
    }

    fn handle_prli_reply(&mut self, now: Instant, index: usize, process: &Process) {
        if process.response != Process::EXECUTED {
            let explanation = process.response;
            let rejection = Rejection { reason: Rejection::UNABLE, explanation };
            self.fail(now, index, Failure::Refused(rejection));
            return;
        }
        let retries = retries(process) && self.config.retries;
        let login = self.peers[index].login.as_mut().expect("PRLI comes after PLOGI");
        login.functions.target = functions(process).target;
        login.retries = retries;
        self.begin(now, index, Stage::Rtv);
    }
}
