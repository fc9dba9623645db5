// Floor is the least a kube-scheduler extender in Go does: decode the call with encoding/json into Kubernetes' own
// types, answer that every node fits and suits alike. It counts nothing; tests/bench measures Berth against it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"
	extender "k8s.io/kube-scheduler/extender/v1"
)

const score = 5

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	http.HandleFunc("/filter", func(w http.ResponseWriter, r *http.Request) {
		if args, ok := decoded(w, r); ok {
			answer(w, extender.ExtenderFilterResult{Nodes: args.Nodes, NodeNames: args.NodeNames})
		}
	})
	http.HandleFunc("/prioritize", func(w http.ResponseWriter, r *http.Request) {
		if args, ok := decoded(w, r); ok {
			answer(w, priorities(args))
		}
	})
	log.Fatal(http.ListenAndServe(*address, nil))
}

func decoded(w http.ResponseWriter, r *http.Request) (extender.ExtenderArgs, bool) {
	var args extender.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return args, false
	}
	return args, true
}

func priorities(args extender.ExtenderArgs) extender.HostPriorityList {
	found := extender.HostPriorityList{}
	if args.NodeNames != nil {
		for _, name := range *args.NodeNames {
			found = append(found, extender.HostPriority{Host: name, Score: score})
		}
		return found
	}
	for _, node := range nodes(args.Nodes) {
		found = append(found, extender.HostPriority{Host: node.Name, Score: score})
	}
	return found
}

func nodes(list *v1.NodeList) []v1.Node {
	if list == nil {
		return nil
	}
	return list.Items
}

// A known length: an answer in chunks would cost kube-scheduler a new connection for each call.
func answer(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
