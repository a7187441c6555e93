# fresh machine: site, the repository's own tree in /tmp/new
say() { echo "== $(date +%T) $*"; }
R=$PWD
if [ ! -d /tmp/site ]; then mkdir -p /tmp/site && python3 -c "import tarfile; tarfile.open('.gpu/site.tar.xz').extractall('/tmp/site')"; fi
[ -d /tmp/new ] || cp -r $R /tmp/new; mkdir -p /tmp/c2; cd /tmp/new; python3 -c "import tarfile; tarfile.open('$R/.gpu/x14.tar.xz').extractall('/tmp/new')"
make -s autotopk/runtime/_launcher.abi3.so PYTHON=python3
export PYTHONPATH=/tmp/site:$PWD AUTOTOPK_CACHE_DIR=/tmp/c2 PYTHONUNBUFFERED=1
