"""On the path of a rehearsal whose wrapper imports torchvision and, for text, never uses it."""

import no_torchvision

no_torchvision.install(told=False)
