// The import keeps `go mod tidy` from dropping what upstream's suite needs.
package suite

import _ "k8s.io/kubernetes/test/e2e"
