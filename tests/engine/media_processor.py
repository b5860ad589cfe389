"""Stand-in for the image processor that ships with the Kimi-K2.5 checkpoint as remote code.

Copied into the tiny checkpoint; every picture becomes one grid of 4 x 4 patches, 4 tokens.
"""

import numpy
import torch
from transformers import BaseImageProcessor

PATCH, SIDE = 14, 4


class TinyMediaProcessor(BaseImageProcessor):
    num_frames_per_chunk = 4

    def media_tokens_calculator(self, chunk):
        return (SIDE // 2) ** 2

    def preprocess(self, chunks, **kwargs):
        patches, grids = [], []
        for chunk in chunks:
            frames = chunk["video_chunk"] if chunk["type"] == "video_chunk" else [chunk["image"]]
            for frame in frames:
                picture = frame.convert("RGB").resize((PATCH * SIDE, PATCH * SIDE))
                pixels = torch.from_numpy(numpy.array(picture)).float().permute(2, 0, 1) / 127.5 - 1
                tiles = pixels.reshape(3, SIDE, PATCH, SIDE, PATCH).permute(1, 3, 0, 2, 4)
                patches.append(tiles.reshape(SIDE * SIDE, 3, PATCH, PATCH))
            grids.append([len(frames), SIDE, SIDE])
        return {"pixel_values": torch.cat(patches), "grid_thws": torch.tensor(grids)}

    def split_video_chunks(self, video):
        return [video]
