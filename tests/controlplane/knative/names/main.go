// names stands in for cluster DNS and kube-proxy: an HTTP proxy that knows where the names of Services run here.
//
// A program with HTTP_PROXY set to it reaches http://release.berth.svc.cluster.local. The table (JSON, name to
// host:port) is read anew when it changes. Each request is a line of the log: what it was and how it was answered.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"time"
)

type table struct {
	sync.Mutex
	path    string
	changed time.Time
	places  map[string]string
}

// place returns where a name runs, "" for one that nobody has.
func (t *table) place(name string) string {
	t.Lock()
	defer t.Unlock()
	if about, err := os.Stat(t.path); err == nil && !about.ModTime().Equal(t.changed) {
		if text, err := os.ReadFile(t.path); err == nil {
			fresh := map[string]string{}
			if json.Unmarshal(text, &fresh) == nil {
				t.places, t.changed = fresh, about.ModTime()
			}
		}
	}
	return t.places[name]
}

type call struct {
	At      time.Time `json:"at"`
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Event   string    `json:"event"`
	Type    string    `json:"type"`
	Subject string    `json:"subject"`
	Status  int       `json:"status"`
	Seconds float64   `json:"seconds"`
}

type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host:port")
	path := flag.String("table", "", "the file of names")
	flag.Parse()
	names := &table{path: *path}
	lines := json.NewEncoder(os.Stdout)
	var writing sync.Mutex
	log.SetFlags(0)
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", names.place(nameOf(r.In))
			r.Out.Host = r.In.Host // Knative's channels and routes are told apart by it
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && r.URL.Host == "" && names.place(nameOf(r)) == "" {
			return
		}
		began, said := time.Now(), &answer{w, http.StatusOK}
		about := call{At: began, Name: nameOf(r), Path: r.URL.Path}
		about.Event, about.Type, about.Subject = r.Header.Get("Ce-Id"), r.Header.Get("Ce-Type"), r.Header.Get("Ce-Subject")
		if names.place(about.Name) == "" {
			http.Error(said, "there is no host "+about.Name, http.StatusBadGateway)
		} else {
			proxy.ServeHTTP(said, r)
		}
		about.Status, about.Seconds = said.status, time.Since(began).Seconds()
		writing.Lock()
		defer writing.Unlock()
		_ = lines.Encode(about)
	}
	log.Fatal(http.ListenAndServe(*listen, http.HandlerFunc(serve)))
}

func nameOf(r *http.Request) string {
	name, _, _ := strings.Cut(r.Host, ":")
	return name
}
