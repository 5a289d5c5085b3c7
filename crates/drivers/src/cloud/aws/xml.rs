//! Reads the answers of EC2 and STS.

use roxmltree::{Document, Node};

use super::error::{Failure, quoted};

/// Reads an answer, by names whatever their namespace.
pub(super) fn read<T>(body: &str, reader: impl FnOnce(Node<'_, '_>) -> T) -> Result<T, Failure> {
    match Document::parse(body) {
        Ok(document) => Ok(reader(document.root_element())),
        Err(cause) => Err(Failure::Lost(format!("the answer is not XML: {cause}"))),
    }
}

/// The error in an answer; none if it has none. EC2 writes `Response/Errors/Error`, STS `ErrorResponse/Error`.
pub(super) fn refusal(body: &str) -> Option<Failure> {
    let document = Document::parse(body).ok()?;
    let error = document.descendants().find(|node| node.has_tag_name_of("Error"))?;
    let part = |name: &str| text(error, &[name]).map(quoted).unwrap_or_default();
    let code = part("Code");
    (!code.is_empty()).then(|| Failure::Refused { code, message: part("Message") })
}

/// The element that a path of names leads to.
pub(super) fn find<'a, 'input>(from: Node<'a, 'input>, path: &[&str]) -> Option<Node<'a, 'input>> {
    path.iter().try_fold(from, |node, name| node.children().find(|child| child.has_tag_name_of(name)))
}

/// The text at a path; none if it is empty.
pub(super) fn text<'a>(from: Node<'a, '_>, path: &[&str]) -> Option<&'a str> {
    find(from, path)?.text().map(str::trim).filter(|text| !text.is_empty())
}

/// The elements `item` at a path.
pub(super) fn items<'a, 'input: 'a>(
    from: Node<'a, 'input>,
    path: &[&str],
) -> impl Iterator<Item = Node<'a, 'input>> + use<'a, 'input> {
    let list = find(from, path);
    list.into_iter().flat_map(|list| list.children().filter(|child| child.has_tag_name_of("item")))
}

trait TagName {
    fn has_tag_name_of(&self, name: &str) -> bool;
}

impl TagName for Node<'_, '_> {
    fn has_tag_name_of(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

#[test]
fn errors_are_read_in_the_shapes_of_ec2_and_sts() {
    let ec2 = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>AuthFailure</Code>\
               <Message>AWS was not able</Message></Error></Errors><RequestID>1</RequestID></Response>";
    let sts = "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>\
               <Code>AuthFailure</Code><Message>AWS was not able</Message></Error></ErrorResponse>";
    let expected = Failure::Refused { code: "AuthFailure".to_owned(), message: "AWS was not able".to_owned() };
    assert_eq!(refusal(ec2), Some(expected.clone()));
    assert_eq!(refusal(sts), Some(expected));
    for other in
        ["", "<html>sorry", "<Response/>", "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"]
    {
        assert_eq!(refusal(other), None, "{other}");
    }
}

#[test]
fn documents_that_define_entities_are_not_read() {
    let bomb = "<!DOCTYPE a [<!ENTITY b \"bb\">]><a>&b;</a>";
    assert!(read(bomb, |_| ()).is_err());
}
