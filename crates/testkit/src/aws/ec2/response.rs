//! Answers and errors as EC2 writes them.

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

pub(super) fn refused<T>(status: u16, code: &str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { status, code: code.to_owned(), message: message.into() })
}

impl Refusal {
    pub(super) fn body(&self) -> String {
        let message = self.message.replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{}</Code>\
             <Message>{message}</Message></Error></Errors><RequestID>59dbff89-35bd-4eac-99ed-be587EXAMPLE</RequestID>\
             </Response>",
            self.code
        )
    }
}

/// An answer as EC2 writes it.
pub(super) fn wrap(action: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response \
         xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE\
         </requestId>{content}</{action}Response>"
    )
}
