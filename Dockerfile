# uetkit in a container, of the programs of a release. In the folder of an unpacked archive:
#
#   docker build -t uetkit .
#   docker run --rm uetkit                       it checks itself
#   docker run --rm --network host uetkit serve
FROM scratch
COPY uetperf uetdump uetswitch testbed /
ENTRYPOINT ["/uetperf"]
