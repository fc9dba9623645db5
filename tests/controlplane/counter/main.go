// Counter is a kube-scheduler extender in Go that keeps its counts in memory alone: so many units a node, one a pod,
// most free first. It filters, prioritizes and binds, and takes a unit back when its pod is gone or the bind failed.
// It forgets all with its end, and a second one would count by itself; tests/bench measures Berth against it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	extender "k8s.io/kube-scheduler/extender/v1"
)

const full = "no unit is free"

type counter struct {
	units  int
	client kubernetes.Interface
	mutex  sync.Mutex
	used   map[string]int
	nodeOf map[types.UID]string
}

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	kubeconfig := flag.String("kubeconfig", "", "whose API server to bind at")
	units := flag.Int("units", 10, "units of a node")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1 // no limit of its own
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	c := &counter{units: *units, client: client, used: map[string]int{}, nodeOf: map[types.UID]string{}}
	c.releaseDeleted()
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	http.HandleFunc("/held", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.held()) })
	http.HandleFunc("/filter", on(c.filter))
	http.HandleFunc("/prioritize", on(c.prioritize))
	http.HandleFunc("/bind", on(c.bind))
	log.Fatal(http.ListenAndServe(*address, nil))
}

// Looks in once: whoever was bound before is not counted, so it has to start before the pods.
func (c *counter) releaseDeleted() {
	factory := informers.NewSharedInformerFactory(c.client, 0)
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
		if last, ok := gone.(cache.DeletedFinalStateUnknown); ok {
			gone = last.Obj
		}
		if pod, ok := gone.(*v1.Pod); ok {
			c.release(pod.UID)
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
}

func (c *counter) held() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.nodeOf)
}

func (c *counter) filter(args extender.ExtenderArgs) any {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	fits, refused := []string{}, extender.FailedNodesMap{}
	for _, name := range names(args) {
		if c.used[name] < c.units {
			fits = append(fits, name)
		} else {
			refused[name] = full
		}
	}
	return extender.ExtenderFilterResult{NodeNames: &fits, FailedNodes: refused}
}

func (c *counter) prioritize(args extender.ExtenderArgs) any {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	scores := extender.HostPriorityList{}
	for _, name := range names(args) {
		free := int64(c.units - c.used[name])
		scores = append(scores, extender.HostPriority{Host: name, Score: extender.MaxExtenderPriority * free / int64(c.units)})
	}
	return scores
}

func (c *counter) bind(args extender.ExtenderBindingArgs) any {
	if !c.reserve(args.PodUID, args.Node) {
		return extender.ExtenderBindingResult{Error: args.Node + ": " + full}
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
		Target:     v1.ObjectReference{Kind: "Node", Name: args.Node},
	}
	pods := c.client.CoreV1().Pods(args.PodNamespace)
	if err := pods.Bind(context.Background(), binding, metav1.CreateOptions{}); err != nil {
		c.release(args.PodUID)
		return extender.ExtenderBindingResult{Error: err.Error()}
	}
	return extender.ExtenderBindingResult{}
}

func (c *counter) reserve(uid types.UID, node string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, ours := c.nodeOf[uid]; ours || c.used[node] >= c.units {
		return false
	}
	c.used[node]++
	c.nodeOf[uid] = node
	return true
}

func (c *counter) release(uid types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if node, ours := c.nodeOf[uid]; ours {
		c.used[node]--
		delete(c.nodeOf, uid)
	}
}

func names(args extender.ExtenderArgs) []string {
	if args.NodeNames == nil {
		return nil
	}
	return *args.NodeNames
}

func on[Args any](answered func(Args) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var args Args
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, answered(args))
	}
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
