//! Discovery, probes, Connects and fences: the work of a listener beside its channels.

use tyche_crypto::{PublicKey, Responder, SecretKey, Secrets};
use tyche_wire::{
    self as wire, Accept, ChannelId, CipherSuite, Connect, ConnectFlags, Control, Cookie, Discover,
    Fence, Fenced, Flags, Geometry, Header, Hello, Introduction, Kind, Mac, Name, Offer, Reason,
    Reject, Rejection, ResetToken, SealedAnswer, Text, Versions,
};

use super::gate::{Asker, Proof, Question, Sealed};
use super::keyring::Keyring;
use super::open::{Keys, Open};
use super::{Listener, ListenerEvent, Refusal};
use crate::channel::ChannelConfig;
use crate::channel::protection::{self, PSK};
use crate::question;
use crate::rules::{Rule, Rules};
use crate::target_end::admission::{Admission, Grant, Request};
use crate::target_end::attempts::Verdict;
use crate::target_end::export::ChannelRef;
use crate::target_end::registry::{FenceAnswer, Registry};
use crate::target_end::requests::TargetChannel;
use crate::time::Instant;

impl<R: Rules> Listener<R> {
    pub(super) fn handle_hello(
        &mut self,
        now: Instant,
        src: Mac,
        header: &Header,
        hello: &Hello,
    ) -> Result<(), Reject> {
        if header.flags.contains(Flags::REPLY) {
            return Err(Reject::Unexpected);
        }
        if hello.target != self.identity {
            return Err(Reject::Target);
        }
        if hello.frame_len as usize <= self.config.frame_len_max {
            let ticket = self.gate.ticket(now, src);
            self.answers.post(src, Flags::REPLY, Control::Hello(Hello { ticket, ..hello.clone() }));
        }
        Ok(())
    }

    /// Whether [`serve_requests`](Self::serve_requests) has something to do.
    pub fn has_requests(&self) -> bool {
        self.gate.waiting() > 0 || self.channels.need_registry()
    }

    /// Does the work that needs the registry: answers Discovers, Connects and fences, reports signs
    /// of life, stalled and closed channels, and closes channels that the registry names.
    pub fn serve_requests(&mut self, now: Instant, registry: &mut Registry) {
        self.report_life(registry);
        self.report_credits(now, registry);
        self.give_up_stalled(now, registry);
        for _ in 0..self.gate.waiting() {
            match self.gate.poll_question().expect("counted") {
                Question::Discover(src, _, discover) => self.offer(src, &discover, registry),
                Question::Connect(asker, connect) => self.connect(now, asker, connect, registry),
                Question::SealedConnect(sealed) => self.open_connect(now, &sealed, registry),
                Question::Fence(channel, fence) => self.fence(now, channel, &fence, registry),
            }
        }
        self.handle_requests(now, registry);
        self.reap(registry);
    }

    /// Reports channels that were asked for a sign of life and have shown one.
    fn report_life(&mut self, registry: &mut Registry) {
        let link = self.config.link;
        for open in self.channels.needing_mut().filter(|open| open.shows_life()) {
            open.asked_at = None;
            let heard_at = open.heard_at().expect("a channel that shows life was heard");
            registry.lives(heard_at, ChannelRef { link, channel: open.id() });
        }
    }

    /// Reports the pages that hosts use.
    fn report_credits(&mut self, now: Instant, registry: &mut Registry) {
        let link = self.config.link;
        for open in self.channels.needing_mut() {
            while let Some(news) = open.take_credit_news() {
                registry.credit(now, ChannelRef { link, channel: open.id() }, news);
            }
        }
    }

    /// Closes the channels of this link that the registry names, asks others for a sign of life,
    /// and has hosts told how many pages they may use.
    fn handle_requests(&mut self, now: Instant, registry: &mut Registry) {
        self.close_called(now, registry);
        while let Some((channel, pages)) = registry.pool.poll_told(self.config.link) {
            let open = self.channels.get_mut(channel.channel);
            if let Some(target) = open.and_then(|open| open.target.as_mut()) {
                target.tell_credit(pages);
            }
        }
        for channel in registry.take_asking(self.config.link) {
            let open = self.channels.get_mut(channel).filter(|open| !open.closing);
            let Some(open) = open else { continue };
            // The first frame of a half-open channel is a sign of life, too.
            open.asked_at.get_or_insert(now);
            if let Some(target) = &mut open.target {
                target.channel.ask_for_life(now);
            }
        }
    }

    /// Closes the channels of this link that the registry names. Hosts are told if their export is
    /// removed.
    fn close_called(&mut self, now: Instant, registry: &mut Registry) {
        for channel in registry.take_closing(self.config.link) {
            let Some(open) = self.channels.get_mut(channel) else { continue };
            if registry.is_removed(open.grant.export) {
                open.end_with_export(now);
            } else {
                open.closing = true;
            }
        }
    }

    /// Removes closed channels that have no requests at the disk any more.
    fn reap(&mut self, registry: &mut Registry) {
        let (link, events) = (self.config.link, &mut self.events);
        self.channels.reap(|open| {
            let channel = open.id();
            let target = open.target.as_ref().filter(|_| !open.is_done);
            let outcomes = target.map(|target| (target.outcomes(), target.is_answered()));
            let amounts = open.target.as_ref().map(TargetChannel::amounts).unwrap_or_default();
            let reference = ChannelRef { link, channel };
            registry.closed(open.grant.export, reference, amounts, outcomes);
            if open.target.is_some() {
                events.push_back(ListenerEvent::Closed { channel });
            }
        });
    }

    fn offer(&mut self, src: Mac, discover: &Discover, registry: &Registry) {
        let matching = registry.offered(discover).count();
        let asks_for_one = !discover.name.is_empty() || !discover.uuid.is_nil();
        if matching == 0 && asks_for_one {
            return;
        }
        let total = u16::try_from(matching).unwrap_or(u16::MAX);
        let first = discover.first.min(total);
        let rest = registry.offered(discover).take(usize::from(total)).skip(usize::from(first));
        // Exports come before the key, which is no more than a hint.
        let room = self.room(discover.frame_len());
        // Who knows one of the keys is shown that one: he may know the next one already.
        let proved = |key: &_| question::is_proof(key, Kind::Discover, discover.nonce);
        let key = self.keyring.as_ref();
        let key = key.map(|it| *it.find(proved).unwrap_or_else(|| it.shown()).as_bytes());
        let key = key.filter(|_| Offer::records_within(room, true) > 0);
        let records = Offer::records_within(room, key.is_some());
        let offer = Offer {
            nonce: discover.nonce,
            versions: Versions::OURS,
            target: self.identity,
            name: registry.target().name,
            first,
            total,
            exports: rest.take(records).collect(),
            key,
        };
        self.answers.post(src, Flags::NONE, Control::Offer(offer));
    }

    /// Opens a sealed connect, and goes on with it as with another.
    fn open_connect(&mut self, now: Instant, sealed: &Sealed, registry: &mut Registry) {
        let (mac, issued, attempt) = (sealed.mac, sealed.issued, sealed.connect.attempt);
        let Some(keyring) = &self.keyring else {
            let rejection = self.rejection(attempt, Reason::NoKey, Text::EMPTY);
            return self.answers.post(mac, Flags::NONE, Control::Reject(rejection));
        };
        // The target may have had another key when the connect came.
        let key = sealed.known.and_then(|known| Some((known, keyring.secret(known)?.clone())));
        let Some(key) = key else { return self.rejects.add(Reject::Forged) };
        // What is decided already is not decrypted again.
        if self.repeats(mac, attempt) {
            return;
        }
        match self.attempts[1].verdict(now, (mac, attempt), issued) {
            Ok(Verdict::Waiting) => {}
            Ok(Verdict::Refused(answer)) => {
                return self.answers.post(mac, Flags::NONE, (**answer).clone());
            }
            Ok(Verdict::Granted) => return,
            Err(reject) => return self.rejects.add(reject),
        }
        let ephemeral = protection::draw(self.cookies.random());
        match Proof::check(&key, ephemeral, sealed, registry) {
            Ok((proof, connect)) => {
                let asker = Asker { mac, issued, proof: Some(proof) };
                self.connect(now, asker, Box::new(connect), registry);
            }
            Err(reject) => self.rejects.add(reject),
        }
    }

    /// Answers an attempt again that has a channel; false if it has none.
    fn repeats(&mut self, mac: Mac, attempt: u64) -> bool {
        let same = |open: &&Open<R>| (open.accept.attempt, open.config.peer_mac) == (attempt, mac);
        let Some(open) = self.channels.open().find(same) else { return false };
        let answer = match &open.keys {
            Some(keys) => Control::SealedAnswer(keys.answer.clone()),
            None => Control::Accept(open.accept.clone()),
        };
        self.answers.post(mac, Flags::NONE, answer);
        true
    }

    fn connect(
        &mut self,
        now: Instant,
        asker: Asker,
        connect: Box<Connect>,
        registry: &mut Registry,
    ) {
        let (src, issued) = (asker.mac, asker.issued);
        if self.repeats(src, connect.attempt) {
            return;
        }
        let ends = |open: &Open<R>| (open.config.peer_mac, open.config.peer.1);
        if self.channels.open().any(|open| ends(open) == (src, connect.cookie)) {
            return self.rejects.add(Reject::Cookie);
        }
        let (attempt, is_sealed) = ((src, connect.attempt), asker.proof.is_some());
        match self.attempts[usize::from(is_sealed)].verdict(now, attempt, issued) {
            Ok(Verdict::Waiting) => {}
            Ok(Verdict::Refused(answer)) => {
                return self.answers.post(src, Flags::NONE, (**answer).clone());
            }
            Ok(Verdict::Granted) if R::keeps(Rule::CheckTicket) => return,
            Ok(Verdict::Granted) => {}
            Err(reject) => return self.rejects.add(reject),
        }
        let proof = asker.proof.as_ref();
        let request = Request {
            connect: &connect,
            issued,
            host: proof.map(|it| it.host),
            places: self.places && !is_sealed && !connect.flags.contains(ConnectFlags::CHECKSUM),
            target_name: proof.map_or(Name::EMPTY, |it| it.target_name),
            export_name: proof.map_or(Name::EMPTY, |it| it.export_name),
        };
        let mut admission = registry.admit::<R>(now, request);
        if matches!(admission, Admission::Wait) {
            self.handle_requests(now, registry);
            self.reap(registry);
            admission = registry.admit::<R>(now, request);
        }
        let verdict = match admission {
            Admission::Wait => return,
            Admission::Stale => return self.rejects.add(Reject::Ticket),
            Admission::Keep => {
                return self.gate.keep(Question::Connect(asker, connect));
            }
            Admission::Refused(reason, detail) => {
                self.note_refusal((now, src), request, (reason, *detail), registry);
                let rejection = self.rejection(connect.attempt, reason, *detail);
                let answer = match asker.proof {
                    None => Control::Reject(rejection),
                    Some(proof) => Control::SealedAnswer(proof.refuse(rejection)),
                };
                self.answers.post(src, Flags::NONE, answer.clone());
                Verdict::Refused(Box::new(answer))
            }
            Admission::Granted(grant) => {
                let (config, accept) = self.vacant(src, &connect, grant, is_sealed, registry);
                let token = self.answers.reset_token(accept.channel, accept.cookie);
                let lasting = self.keyring.as_ref().map(Keyring::lasting);
                let keys = asker.proof.zip(lasting);
                let keys = keys.map(|(proof, key)| proof.accept(token, accept.clone(), key));
                let reference = ChannelRef { link: self.config.link, channel: accept.channel };
                registry.opened::<R>(request, grant, reference, (src, accept.cookie));
                let (origin, session) = (self.gate.origin(src), connect.session);
                let host = request.identity();
                let open = Open::new((now, session, host), config, grant, accept, keys);
                self.channels.add(origin, open);
                self.repeats(src, connect.attempt);
                Verdict::Granted
            }
        };
        let attempts = &mut self.attempts[usize::from(is_sealed)];
        if let Ok(decided) = attempts.verdict(now, attempt, issued) {
            *decided = verdict;
        }
    }

    /// Notes for the log that a host was refused.
    fn note_refusal(
        &mut self,
        (now, from): (Instant, Mac),
        request: Request<'_>,
        (reason, detail): (Reason, Text<128>),
        registry: &Registry,
    ) {
        let Connect { host, export, .. } = *request.connect;
        let named = registry.exports().map(|(_, it)| it).find(|it| it.uuid == export);
        let refusal = Refusal {
            from,
            host_name: request.host_name(),
            is_known: request.host.is_some_and(|it| it.name.is_some()),
            host,
            key: request.host.map(|it| it.key),
            export,
            export_name: named.map_or(Name::EMPTY, |it| it.name),
            reason,
            detail,
            left_out: 0,
        };
        self.refusals.note(now, refusal);
    }

    fn rejection(&self, attempt: u64, reason: Reason, detail: Text<128>) -> Rejection {
        Rejection { attempt, versions: Versions::OURS, reason, target: self.identity, detail }
    }

    /// Handles a fence: closes another channel of the asker's session. It is answered only when
    /// that channel is closed and has no requests at the disk; until then, the host repeats it.
    fn fence(&mut self, now: Instant, channel: ChannelId, fence: &Fence, registry: &mut Registry) {
        let asker = ChannelRef { link: self.config.link, channel };
        let mut answer = registry.fence::<R>(asker, fence);
        if answer == FenceAnswer::Wait {
            // The channel may be on this link.
            self.close_called(now, registry);
            self.reap(registry);
            answer = registry.fence::<R>(asker, fence);
        }
        let outcomes = match answer {
            FenceAnswer::Wait => return,
            FenceAnswer::Refused => return self.rejects.add(Reject::Mismatch),
            FenceAnswer::Closed(outcomes) => *outcomes,
        };
        let Fence { cookie, channel: closed, .. } = *fence;
        let open = self.channels.get_mut(channel);
        if let Some(open) = open.filter(|open| !open.fenced.is_full()) {
            open.fenced.push(Fenced { cookie, channel: closed, outcomes });
        }
    }

    /// The parameters of a new channel.
    fn vacant(
        &mut self,
        src: Mac,
        connect: &Connect,
        grant: Grant,
        is_sealed: bool,
        registry: &Registry,
    ) -> (ChannelConfig, Accept) {
        let (channel, cookie) = (self.channels.vacancy(), self.cookies.make());
        // A tag covers all that a checksum does.
        let checksum = connect.flags.contains(ConnectFlags::CHECKSUM) && !is_sealed;
        let stages = connect.flags.contains(ConnectFlags::STAGES);
        let block_status = connect.flags.contains(ConnectFlags::BLOCK_STATUS);
        let export = registry.export(grant.export);
        let accept = Accept {
            attempt: connect.attempt,
            target: self.identity,
            generation: export.generation,
            export: export.uuid,
            // A session that may only read has a read-only disk, whatever the export is.
            geometry: Geometry { read_only: !grant.writer, ..export.geometry },
            cookie,
            channel,
            queue_size: grant.queue_size,
            rings: self.config.rings,
            frame_len: connect.frame_len.min(self.config.frame_len_max as u32),
            damq_pages: grant.damq_pages,
            checksum,
            stages,
            block_status,
            keep_alive_ms: connect.keep_alive_ms,
        };
        let config = ChannelConfig {
            own: (channel, cookie),
            peer: (connect.channel, connect.cookie),
            peer_mac: src,
            frame_len: accept.frame_len as usize,
            rx_rings: self.config.rings,
            tx_rings: connect.rings,
            keep_alive_ns: u64::from(connect.keep_alive_ms) * 1_000_000,
            checksum,
            stages,
            block_status,
            batch: registry.target().batch,
        };
        (config, accept)
    }
}

impl Proof {
    /// Opens a sealed connect to the target with this key. Its host is the one whose key it has,
    /// not who it says that it is.
    fn check(
        (known, key): &(PublicKey, SecretKey),
        ephemeral: [u8; 32],
        Sealed { cookie, connect: sealed, .. }: &Sealed,
        registry: &Registry,
    ) -> Result<(Self, Connect), Reject> {
        let prologue = protection::prologue(*cookie, sealed);
        let opened = Responder::new(key, &PSK, &prologue, ephemeral, &sealed.message);
        let (handshake, peer, payload) = opened.map_err(|_| Reject::Forged)?;
        let Introduction { suite, target_name, export_name, connect } =
            Introduction::parse(&payload)?;
        let Connect { attempt, ticket, target, .. } = connect;
        let mark = Cookie(connect.cookie.0 & u64::from(u32::MAX));
        let outside = (sealed.attempt, sealed.ticket, sealed.target, *cookie);
        if (attempt, ticket, target, mark) != outside {
            return Err(Reject::Mismatch);
        }
        let host = registry.access().identify(peer);
        let handshake = Box::new(handshake);
        let (attempt, target) = (connect.attempt, connect.target);
        let known = *known;
        let this =
            Self { attempt, known, target, host, target_name, export_name, suite, handshake };
        Ok((this, connect))
    }

    fn refuse(self, rejection: Rejection) -> SealedAnswer {
        self.answer(&wire::Verdict::Rejected(rejection)).0
    }

    /// Accepts the host, which has to know the target by the key `lasting` from now on.
    fn accept(self, token: ResetToken, accept: Accept, lasting: PublicKey) -> Box<Keys> {
        let native = protection::native_suite();
        let suite = if self.suite == native { native } else { CipherSuite::ChaCha20Poly1305 };
        let next_key = (self.known != lasting).then_some(*lasting.as_bytes());
        let verdict = wire::Verdict::Accepted { suite, token, accept, next_key };
        let (answer, secrets) = self.answer(&verdict);
        Keys::new(lasting, (suite, secrets), answer)
    }

    fn answer(self, verdict: &wire::Verdict) -> (SealedAnswer, Secrets) {
        let (attempt, target) = (self.attempt, self.target);
        let (message, secrets) = self.handshake.finish(&verdict.to_bytes());
        let message = message.try_into().expect("verdicts have one length");
        (SealedAnswer { attempt, target, message }, secrets)
    }
}
