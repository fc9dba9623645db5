// Checks a Grafana board by the types that Grafana Labs generate from Grafana's own schema: no field may be unknown,
// also in what a panel's plugin is told, and what has to be there has to be there.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	// Only what the board has: all of Grafana's plugins take minutes to compile.
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(bargauge.VariantConfig())
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())

	text, err := io.ReadAll(os.Stdin)
	exitIf(err)
	var board dashboard.Dashboard
	exitIf(board.UnmarshalJSONStrict(json.RawMessage(text)))
	exitIf(board.Validate())
}

// An error without text is an empty list of errors.
func exitIf(err error) {
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
