# A host of the testbed: the agent turns its environment into commands of uetperf.
FROM scratch
COPY testbed uetperf /
ENTRYPOINT ["/testbed", "agent", "host"]
