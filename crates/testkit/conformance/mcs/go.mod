// The conformance suite of the Multi-Cluster Services API, pinned. It is a module of its own, and its go.mod replaces
// the API by a folder beside it, so both versions are named here.
module portolan.dev/testkit/conformance/mcs

go 1.26

require (
	sigs.k8s.io/mcs-api v0.5.0
	sigs.k8s.io/mcs-api/conformance v0.5.0
)
