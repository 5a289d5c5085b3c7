//! The parameters of a Query API request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::response::{Refusal, refused};

pub(super) struct Parameters(BTreeMap<String, String>);

/// A filter: any of its values matches.
pub(super) struct Filter {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

impl Parameters {
    pub(super) fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// `Name.1`, `Name.2` and so on, without gaps.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        (1..).map_while(|number| self.0.get(&format!("{name}.{number}")).cloned()).collect()
    }

    pub(super) fn needed(&self, name: &str) -> Result<&str, Refusal> {
        match self.get(name) {
            Some(value) => Ok(value),
            None => refused(400, "MissingParameter", format!("The request must contain the parameter {name}")),
        }
    }

    pub(super) fn addresses(&self) -> Result<Vec<Ipv4Addr>, Refusal> {
        let parse = |text: &String| {
            let message = || format!("Value ({text}) for parameter privateIpAddress is invalid.");
            text.parse().or_else(|_| refused(400, "InvalidParameterValue", message()))
        };
        self.list("PrivateIpAddress").iter().map(parse).collect()
    }

    pub(super) fn filters(&self) -> Vec<Filter> {
        let name = |number: usize| self.get(&format!("Filter.{number}.Name"));
        (1..)
            .map_while(|number| {
                let values = self.list(&format!("Filter.{number}.Value"));
                Some(Filter { name: name(number)?.to_owned(), values })
            })
            .collect()
    }

    /// How many results the caller wants, and after which.
    pub(super) fn page(&self) -> Result<Page, Refusal> {
        let after = self.get("NextToken").map(|token| token.trim_start_matches("after-").to_owned());
        let Some(most) = self.get("MaxResults") else { return Ok(Page { most: usize::MAX, after }) };
        match most.parse() {
            Ok(most) if (5..=1000).contains(&most) => Ok(Page { most, after }),
            _ => {
                let message = format!("Value ( {most} ) for parameter maxResults is invalid. Expecting 5 to 1000.");
                refused(400, "InvalidParameterValue", message)
            }
        }
    }

    /// Names that the action does not know.
    pub(super) fn check_names(&self, known: &[&str]) -> Result<(), Refusal> {
        let known: BTreeSet<&str> = known.iter().copied().chain(["Action", "Version"]).collect();
        let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        match self.0.keys().find(|name| !known.contains(stem(name).as_str())) {
            Some(name) => refused(400, "UnknownParameter", format!("The parameter {name} is not recognized")),
            None => Ok(()),
        }
    }
}

/// A part of a list that is ordered by id.
pub(super) struct Page {
    pub(super) most: usize,
    pub(super) after: Option<String>,
}

impl Page {
    /// The items of the page, and the token of the next one.
    pub(super) fn cut<T>(&self, items: Vec<(String, T)>) -> (Vec<(String, T)>, Option<String>) {
        let mut rest: Vec<_> =
            items.into_iter().filter(|(id, _)| self.after.as_ref().is_none_or(|after| id > after)).collect();
        if rest.len() <= self.most {
            return (rest, None);
        }
        rest.truncate(self.most);
        let token = rest.last().map(|(id, _)| format!("after-{id}"));
        (rest, token)
    }
}
