"""Size of what ships, beside the stock layer's: the layer of the synthesized assembly, zipped and not.

    python -m bench.layer_size [assembly]

The public Powertools layer holds the package with all extras and without boto3. Its size is computed from wheels for
aarch64, CPython 3.13, without bytecode: `[all]` (54.8 MiB, 26.0 zipped) less boto3 (26.6 MiB, 17.0 zipped).
"""

import io
import sys
import zipfile
from pathlib import Path

STOCK_MIB, STOCK_ZIPPED_MIB = 54.8 - 26.6, 26.0 - 17.0
MIB = 1024 * 1024


def main(assembly: Path) -> None:
    """Measure each distinct layer asset, and the function assets."""
    assets = sorted(path for path in assembly.glob("asset.*") if path.is_dir())
    if not assets:
        sys.exit(f"{assembly} holds no assets: synthesize first (make synth)")
    for asset in assets:
        size, zipped = _sizes(asset)
        if (asset / "python").is_dir():
            print(
                f"layer     {size / MIB:6.2f} MiB, zipped {zipped / MIB:5.2f} MiB: {size / MIB / STOCK_MIB:.0%} and "
                f"{zipped / MIB / STOCK_ZIPPED_MIB:.0%} of the stock layer"
            )
        elif (asset / "shared").is_dir():
            own = ", ".join(sorted(path.name for path in asset.iterdir() if path.is_dir()))
            print(f"function  {size / 1024:6.1f} KiB, zipped {zipped / 1024:5.1f} KiB: {own}")


def _sizes(folder: Path) -> tuple[int, int]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(folder))
    return sum(path.stat().st_size for path in files), target.tell()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cdk.out"))
