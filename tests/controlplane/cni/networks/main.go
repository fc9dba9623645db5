// networks prints what Multus reads in the annotations of the pod on its standard input: a JSON list of networks.
// It is Multus' own reading (pkg/k8sclient, GetPodNetwork), which its daemon does when the pod's sandbox is made.
package main

import (
	"encoding/json"
	"log"
	"os"

	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/k8sclient"
	core "k8s.io/api/core/v1"
)

func main() {
	var pod core.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pod); err != nil {
		log.Fatal(err)
	}
	networks, err := k8sclient.GetPodNetwork(&pod)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(networks); err != nil {
		log.Fatal(err)
	}
}
