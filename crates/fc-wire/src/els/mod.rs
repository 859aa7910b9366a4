//! Extended link services (FC-LS-2): logins, logouts, and the state of exchanges.
//!
//! A request begins with its [`Code`]. The answer, LS_ACC or LS_RJT, does not say what it answers:
//! the exchange does. Bytes behind the last field are ignored.
//!
//! | file | services |
//! |---|---|
//! | `login` | FLOGI, FDISC, PLOGI, PDISC |
//! | `process` | PRLI, PRLO |
//! | `session` | LOGO, ADISC, LS_RJT |
//! | `exchange` | RRQ, REC, SRR |
//! | `state` | RTV, RLS, SCR, RSCN |

mod exchange;
mod login;
mod process;
mod session;
mod state;

pub use exchange::{ESTAT_COMPLETE, ESTAT_INITIATIVE, ESTAT_RESPONDER};
pub use exchange::{Exchange, ExchangeStatus, Srr};
pub use login::{Class3, FabricLogin, Features, LOGIN_LEN, PortLogin};
pub use process::{FcpParameters, Process};
pub use session::{Adisc, Logo, Rejection};
pub use state::{ChangedPort, LinkErrors, Rls, Rscn, Scr, Timeouts};

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Reject;
use crate::bits::codes;
use crate::bytes::{Append, exactly, front};

codes! {
    /// The code of a link service, the first byte of its payload.
    Code(u8) {
        /// The request is refused.
        LsRjt = 0x01;
        /// The request is accepted.
        LsAcc = 0x02;
        /// Login of a port with a port.
        Plogi = 0x03;
        /// Login of a node with a fabric, or with a node beside it.
        Flogi = 0x04;
        /// Logout.
        Logo = 0x05;
        /// Asks for time-outs.
        Rtv = 0x0e;
        /// Asks for errors of the link.
        Rls = 0x0f;
        /// The numbers of an exchange that was aborted may be used again.
        Rrq = 0x12;
        /// Asks for the state of an exchange.
        Rec = 0x13;
        /// Asks for a sequence of an exchange again.
        Srr = 0x14;
        /// Login of a process: agreement about FCP.
        Prli = 0x20;
        /// Logout of a process.
        Prlo = 0x21;
        /// Confirms a login of ports.
        Pdisc = 0x50;
        /// Login of a further port of a node.
        Fdisc = 0x51;
        /// Confirms addresses and names.
        Adisc = 0x52;
        /// Ports of the fabric have changed.
        Rscn = 0x61;
        /// Asks for RSCNs.
        Scr = 0x62;
    }
}

/// A request, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the codes are documented, and so are the contents")]
pub enum Request<'a> {
    Plogi(PortLogin),
    Flogi(FabricLogin),
    Logo(Logo),
    Rtv,
    Rls(Rls),
    Rrq(Exchange),
    Rec(Exchange),
    Srr(Srr),
    Prli(Process),
    Prlo(Process),
    Pdisc(PortLogin),
    Fdisc(FabricLogin),
    Adisc(Adisc),
    Rscn(Rscn<'a>),
    Scr(Scr),
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// LS_RJT
    Refused(Rejection),
    /// LS_ACC of FLOGI or FDISC.
    FabricLogin(FabricLogin),
    /// LS_ACC of PLOGI or PDISC.
    PortLogin(PortLogin),
    /// LS_ACC of PRLI or PRLO.
    Process(Process),
    /// LS_ACC of ADISC.
    Adisc(Adisc),
    /// LS_ACC of RTV.
    Timeouts(Timeouts),
    /// LS_ACC of RLS.
    LinkErrors(LinkErrors),
    /// LS_ACC of REC.
    Exchange(ExchangeStatus),
    /// LS_ACC of a request that needs no more than that.
    Accepted,
}

/// Code and three bytes without meaning, in front of most payloads.
fn word(code: Code) -> [u8; 4] {
    [code.to_wire(), 0, 0, 0]
}

/// The head of a list of pages.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PagesHead {
    code: u8,
    page_len: u8,
    /// Bytes of head and pages.
    len: U16,
}

/// The pages of a PRLI, PRLO or RSCN.
///
/// # Errors
/// `Length`; `Range` if the pages are of another length.
fn pages<P>(payload: &[u8]) -> Result<&[P], Reject>
where
    P: FromBytes + Immutable + Unaligned,
{
    let (head, _) = front::<PagesHead>(payload)?;
    if usize::from(head.page_len) != size_of::<P>() {
        return Err(Reject::Range);
    }
    let pages = payload.get(size_of::<PagesHead>()..usize::from(head.len.get()));
    exactly(pages.ok_or(Reject::Length)?)
}

fn put_pages<P: IntoBytes + Immutable>(code: Code, pages: &[P], payload: &mut Append<'_>) {
    let len = size_of::<PagesHead>() + size_of_val(pages);
    let head = PagesHead {
        code: code.to_wire(),
        page_len: size_of::<P>() as u8,
        len: u16::try_from(len).expect("a frame's worth of pages").into(),
    };
    payload.put(&head).put(pages);
}

fn code(payload: &[u8]) -> Result<Code, Reject> {
    let code = payload.first().ok_or(Reject::Length)?;
    Code::from_wire(*code).ok_or(Reject::Code)
}

impl<'a> Request<'a> {
    /// Parses the payload of a request.
    ///
    /// # Errors
    /// The first fault found. `Code` if it is none that is known: the answer is an LS_RJT then.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Reject> {
        Ok(match code(payload)? {
            Code::LsRjt | Code::LsAcc => return Err(Reject::Code),
            Code::Plogi => Self::Plogi(PortLogin::parse(payload)?),
            Code::Flogi => Self::Flogi(FabricLogin::parse(payload)?),
            Code::Logo => Self::Logo(Logo::parse(payload)?),
            Code::Rtv => {
                front::<[u8; 4]>(payload)?;
                Self::Rtv
            }
            Code::Rls => Self::Rls(Rls::parse(payload)?),
            Code::Rrq => Self::Rrq(Exchange::parse(payload)?),
            Code::Rec => Self::Rec(Exchange::parse(payload)?),
            Code::Srr => Self::Srr(Srr::parse(payload)?),
            Code::Prli => Self::Prli(Process::parse(payload)?),
            Code::Prlo => Self::Prlo(Process::parse(payload)?),
            Code::Pdisc => Self::Pdisc(PortLogin::parse(payload)?),
            Code::Fdisc => Self::Fdisc(FabricLogin::parse(payload)?),
            Code::Adisc => Self::Adisc(Adisc::parse(payload)?),
            Code::Rscn => Self::Rscn(Rscn::parse(payload)?),
            Code::Scr => Self::Scr(Scr::parse(payload)?),
        })
    }

    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            Self::Plogi(_) => Code::Plogi,
            Self::Flogi(_) => Code::Flogi,
            Self::Logo(_) => Code::Logo,
            Self::Rtv => Code::Rtv,
            Self::Rls(_) => Code::Rls,
            Self::Rrq(_) => Code::Rrq,
            Self::Rec(_) => Code::Rec,
            Self::Srr(_) => Code::Srr,
            Self::Prli(_) => Code::Prli,
            Self::Prlo(_) => Code::Prlo,
            Self::Pdisc(_) => Code::Pdisc,
            Self::Fdisc(_) => Code::Fdisc,
            Self::Adisc(_) => Code::Adisc,
            Self::Rscn(_) => Code::Rscn,
            Self::Scr(_) => Code::Scr,
        }
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than the payload. [`LOGIN_LEN`] bytes are enough for all but an
    /// RSCN.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut payload = Append::new(buffer);
        let code = self.code();
        match self {
            Self::Plogi(login) | Self::Pdisc(login) => login.emit(code, &mut payload),
            Self::Flogi(login) | Self::Fdisc(login) => login.emit(code, &mut payload),
            Self::Logo(logo) => logo.emit(&mut payload),
            Self::Rtv => _ = payload.put(&word(code)),
            Self::Rls(rls) => rls.emit(&mut payload),
            Self::Rrq(exchange) | Self::Rec(exchange) => exchange.emit(code, &mut payload),
            Self::Srr(srr) => srr.emit(&mut payload),
            Self::Prli(process) | Self::Prlo(process) => process.emit(code, &mut payload),
            Self::Adisc(adisc) => adisc.emit(code, &mut payload),
            Self::Rscn(rscn) => rscn.emit(&mut payload),
            Self::Scr(scr) => scr.emit(&mut payload),
        }
        payload.len()
    }
}

impl Reply {
    /// Parses the payload of the answer to a request with the code `request`.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(request: Code, payload: &[u8]) -> Result<Self, Reject> {
        match code(payload)? {
            Code::LsRjt => Rejection::parse(payload).map(Self::Refused),
            Code::LsAcc => Self::parse_accept(request, payload),
            _ => Err(Reject::Code),
        }
    }

    fn parse_accept(request: Code, payload: &[u8]) -> Result<Self, Reject> {
        match request {
            Code::Flogi | Code::Fdisc => FabricLogin::parse(payload).map(Self::FabricLogin),
            Code::Plogi | Code::Pdisc => PortLogin::parse(payload).map(Self::PortLogin),
            Code::Prli | Code::Prlo => Process::parse(payload).map(Self::Process),
            Code::Adisc => Adisc::parse(payload).map(Self::Adisc),
            Code::Rtv => Timeouts::parse(payload).map(Self::Timeouts),
            Code::Rls => LinkErrors::parse(payload).map(Self::LinkErrors),
            Code::Rec => ExchangeStatus::parse(payload).map(Self::Exchange),
            _ => front::<[u8; 4]>(payload).map(|_| Self::Accepted),
        }
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than the payload: [`LOGIN_LEN`] bytes are enough.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut payload = Append::new(buffer);
        let code = Code::LsAcc;
        match self {
            Self::Refused(rejection) => rejection.emit(&mut payload),
            Self::FabricLogin(login) => login.emit(code, &mut payload),
            Self::PortLogin(login) => login.emit(code, &mut payload),
            Self::Process(process) => process.emit(code, &mut payload),
            Self::Adisc(adisc) => adisc.emit(code, &mut payload),
            Self::Timeouts(timeouts) => timeouts.emit(&mut payload),
            Self::LinkErrors(errors) => errors.emit(&mut payload),
            Self::Exchange(status) => status.emit(&mut payload),
            Self::Accepted => _ = payload.put(&word(code)),
        }
        payload.len()
    }
}
