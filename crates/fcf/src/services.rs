//! The services of the fabric: fabric controller and name server.

use tyche_fc_wire::ct::{NamedPort, Reply as NameReply, Request as NameRequest};
use tyche_fc_wire::els::{
    ChangedPort, Class3, Features, LOGIN_LEN, Logo, PortLogin, Rejection, Reply, Request, Rscn,
};
use tyche_fc_wire::{
    FC4_FCP, FCtl, Fc4Functions, Frame, Header, Kind, PAYLOAD_LEN_MAX, PortId, Wwn, Xid,
};

use crate::Fcf;
use crate::nodes::Node;

/// The reason of refusals: unable to perform the request; and explanations: no such port, no such
/// protocol.
const UNABLE: u8 = 9;
const NO_PORT: u8 = 1;
const NO_TYPE: u8 = 7;

/// Whether an address is that of a service.
pub(crate) fn is_well_known(id: PortId) -> bool {
    id.to_u32() >= 0xff_fff0
}

impl Fcf {
    /// Answers a request to a service.
    pub(crate) fn serve(&mut self, node: &Node, frame: &Frame<'_>) {
        match frame.header.kind {
            Kind::ElsRequest => self.serve_link(node, frame),
            Kind::CtRequest if frame.header.d_id == PortId::NAME_SERVER => {
                self.serve_names(node, frame);
            }
            _ => {}
        }
    }

    fn serve_link(&mut self, node: &Node, frame: &Frame<'_>) {
        let header = frame.header;
        let service = header.d_id;
        let request = Request::parse(frame.payload);
        let Some(known) = self.nodes.find_mut(node.id) else { return };
        let reply = match (service, request) {
            (PortId::NAME_SERVER, Ok(Request::Plogi(login))) => {
                known.is_named = true;
                Reply::PortLogin(PortLogin {
                    wwpn: self.config.name,
                    wwnn: self.config.fabric,
                    features: Features::CONTINUOUS_OFFSET,
                    class3: Some(Class3 { receive_len: 2112, sequences: 255, open_sequences: 1 }),
                    ..login
                })
            }
            (PortId::NAME_SERVER, Ok(Request::Logo(_))) => {
                known.is_named = false;
                Reply::Accepted
            }
            (PortId::FABRIC_CONTROLLER, Ok(Request::Scr(_))) => {
                known.is_subscribed = true;
                Reply::Accepted
            }
            _ => {
                let (reason, explanation) = (Rejection::UNSUPPORTED, 0);
                Reply::Refused(Rejection { reason, explanation })
            }
        };
        let mut payload = [0; LOGIN_LEN];
        let len = reply.emit(&mut payload);
        self.push_to(node, header.reply(Kind::ElsReply, header.rx_id), &payload[..len]);
    }

    fn serve_names(&mut self, node: &Node, frame: &Frame<'_>) {
        if !node.is_named {
            let header =
                Header::request(Kind::ElsRequest, PortId::NAME_SERVER, node.id, Xid(0x1000));
            let mut payload = [0; LOGIN_LEN];
            let logo = Logo { id: PortId::NAME_SERVER, wwpn: self.config.name };
            let len = Request::Logo(logo).emit(&mut payload);
            self.push_to(node, header, &payload[..len]);
            return;
        }
        let refused = |explanation| NameReply::Refused { reason: UNABLE, explanation };
        let mut ports = Vec::new();
        let mut changed = None;
        let reply = match NameRequest::parse(frame.payload) {
            Ok(NameRequest::GpnId(id)) => match self.nodes.find(id) {
                Some(found) => NameReply::Name(found.wwpn),
                None => refused(NO_PORT),
            },
            Ok(NameRequest::GffId(id)) => match self.nodes.find(id) {
                Some(found) => NameReply::Functions(Fc4Functions::fcp(found.functions)),
                None => refused(NO_PORT),
            },
            Ok(NameRequest::GpnFt(FC4_FCP)) => {
                let named = self.nodes.iter().filter(|it| it.has_fcp);
                let named: Vec<(PortId, Wwn)> = named.map(|it| (it.id, it.wwpn)).collect();
                let last = named.len().wrapping_sub(1);
                let named = named.iter().enumerate();
                ports.extend(named.map(|(at, it)| NamedPort::new(it.0, it.1, at == last)));
                if ports.is_empty() { refused(NO_TYPE) } else { NameReply::Ports(&ports) }
            }
            Ok(NameRequest::RftId(id, types)) if id == node.id => {
                self.nodes.find_mut(id).expect("it is logged in").has_fcp = types.has(FC4_FCP);
                changed = Some(id);
                NameReply::Registered
            }
            Ok(NameRequest::RffId { id, functions, kind: FC4_FCP }) if id == node.id => {
                self.nodes.find_mut(id).expect("it is logged in").functions = functions;
                changed = Some(id);
                NameReply::Registered
            }
            Ok(NameRequest::RnnId(..) | NameRequest::RspnId(..) | NameRequest::RsnnNn(..)) => {
                NameReply::Registered
            }
            _ => refused(0),
        };
        let mut payload = vec![0; 64 + 128 + size_of_val(&ports[..])];
        let len = reply.emit(&mut payload);
        self.answer_names(node, &frame.header, &payload[..len]);
        if let Some(id) = changed {
            self.tell_change(id);
        }
    }

    /// Sends an answer in as many frames as it needs.
    fn answer_names(&mut self, node: &Node, request: &Header, payload: &[u8]) {
        let reply = request.reply(Kind::CtReply, request.rx_id);
        let parts = payload.chunks(PAYLOAD_LEN_MAX);
        let last = parts.len() - 1;
        for (index, part) in parts.enumerate() {
            let end = if index == last { FCtl::END_SEQ } else { FCtl::EMPTY };
            let f_ctl = FCtl::EX_CTX.with(FCtl::LAST_SEQ).with(FCtl::SEQ_INIT).with(end);
            self.push_to(node, Header { f_ctl, seq_cnt: index as u16, ..reply }, part);
        }
    }

    /// Tells those that want to know of it that a port has changed.
    pub(crate) fn tell_change(&mut self, id: PortId) {
        let others = self.nodes.iter().filter(|it| it.is_subscribed && it.id != id);
        for node in others.copied().collect::<Vec<_>>() {
            let from = PortId::FABRIC_CONTROLLER;
            let header = Header::request(Kind::ElsRequest, from, node.id, Xid(0x2000));
            let mut payload = [0; LOGIN_LEN];
            let rscn = Request::Rscn(Rscn { ports: &[ChangedPort { flags: 0, id }] });
            let len = rscn.emit(&mut payload);
            self.push_to(&node, header, &payload[..len]);
        }
    }
}
